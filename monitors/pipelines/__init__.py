"""What `manage.py run_checks` does for CI pipelines: choose monitors, check them, and report the results."""
