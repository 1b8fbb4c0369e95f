"""`make faults`: kill parts of a loaded process tree, then verify every monitor and alert.

script          the schedule of one run, all from one seed: target states, missed pings and faults
target          the server that is checked; it logs every request
heartbeat_jobs  the jobs that ping heartbeats
consumer        the receiver of alerts; it records every message
tenant          creates monitors and channels through the services that production uses
system          the processes and servers under test, and their addresses
injector        kills processes and restarts them
past            results of the last days, recorded and packed meanwhile, and compared with what is read
monitor_audit   compares what is stored with what was true
alert_audit     compares what the receiver got with what is stored
command         reads the environment and prints the result

rehearsal       `make rehearsal`: the same on two hosts with Debian's PostgreSQL and Redis
upgrade         `make upgrade`: a previous version is replaced by this one, process by process
walkthrough     `make rehearsal`: the commands of docs/operate on new machines
second_host     what the second machine of the walkthrough verifies
plays           one fault after the other on `stage`, with what is false, missed and reported
locations       `make rehearsal`: three locations with agents are cut, slowed down and killed while targets fail
location_audit  compares what is stored and sent with the outages of its targets
slow_link       a link with a delay
reach           each process in a network that reaches only what the documentation lists
"""
