"""Imported by Python at its start if its folder is in PYTHONPATH: gives the process a clock that is AHEAD seconds."""

import os
import time

import time_machine

time_machine.travel(time.time() + int(os.environ["AHEAD"])).start()
time.time()  # it stands still until it is read
