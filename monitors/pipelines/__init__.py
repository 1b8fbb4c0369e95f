"""The parts of `manage.py run_checks` for CI pipelines: choose monitors, check them, and report the results."""
