"""Imported by Python at startup if its folder is in PYTHONPATH: sets the process's clock AHEAD seconds fast."""

import os
import time

import time_machine

time_machine.travel(time.time() + int(os.environ["AHEAD"])).start()
time.time()  # it stands still until it is read
