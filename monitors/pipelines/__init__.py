"""What `manage.py run_checks` does for CI pipelines: choose monitors, have them checked, and say what came of it."""
