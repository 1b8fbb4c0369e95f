"""Parts of `benchmarks/neighbours.py`.

client      an HTTP client for many source addresses, without any dependency
targets     the quiet tenant's targets, which switch at known times, and hostile ones
tenants     creates the accounts, monitors and channels, and clears what a row left behind
watching    pings, pages, /readyz, alerts and memory, observed from outside
audit       compares what is stored with the timetable
figures     the figures of a row, and their limits
stage       a running Pulsekeeper with its tenants, and how a row is played on it
rows        the attacks, one for each shared resource
attacker    the process that plays an attack
"""
