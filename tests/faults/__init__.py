"""`make faults`: a process tree under load while its parts are killed, and then an account of every monitor.

script    what happens when: the targets' states, the heartbeats' silences, and the kills, all from one seed
target    plays the targets' part of it, and notes each request that it gets
pinging   plays the heartbeats' part of it over the web process
tenant    the monitors, made through the services that production uses
killing   does away with processes, and sees that they come back
accounts  what is stored against what was true
"""
