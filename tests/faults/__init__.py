"""`make faults`: a process tree under load while its parts are killed, and then an account of every monitor and alert.

script    what happens when: the targets' states, the heartbeats' silences, and the kills, all from one seed
target    plays the targets' part of it, and notes each request that it gets
pinging   plays the heartbeats' part of it over the web process
taking    plays the receiver of the alerts, and notes each message that it gets
tenant    the monitors and channels, made through the services that production uses
system    what is tried: its processes, its servers, and how they are reached
killing   does away with processes, and sees that they come back
accounts  what is stored against what was true
news      what the receiver was told against what is stored
command   what the commands take and print

rehearsal `make rehearsal`: the same on two hosts, with servers of Debian's packages
upgrade   `make upgrade`: the same while another version is replaced by this one, process by process
"""
