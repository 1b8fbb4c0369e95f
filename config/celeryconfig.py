"""Celery settings and the beat schedule. `config.routing` has the queues.

The broker transports only ids and claims; the data is in PostgreSQL. So messages are acknowledged early, results are
not kept, and a flushed broker costs a lease at most.

Each queue has its own workers (Procfile): a batch or a first check may block its thread while a target hangs, and the
tick that claims due monitors must not wait for it.
"""

from __future__ import annotations

from celery.schedules import crontab
from django.conf import settings
from kombu import Queue

from config.routing import QUEUES, route

broker_url = settings.REDIS_URL
broker_connection_retry_on_startup = True
broker_connection_timeout = 3
broker_transport_options = {"socket_connect_timeout": 3, "socket_timeout": 30}
task_publish_retry_policy = {"max_retries": 1, "interval_start": 0.1}

task_ignore_result = True
task_serializer = result_serializer = event_serializer = "json"
accept_content = result_accept_content = ["json"]  # also for remote control and its replies
task_queues = [Queue(name) for name in QUEUES]
task_create_missing_queues = False
task_default_queue = "dispatch"  # Celery requires one; the router never uses it
task_routes = (route,)

worker_prefetch_multiplier = 1
worker_hijack_root_logger = False
worker_redirect_stdouts = False  # it would break links in e-mails, which are printed without a mail server
worker_send_task_events = False

timezone = "UTC"
beat_max_loop_interval = 1
beat_schedule = {
    "dispatch-due": {
        "task": "monitors.tasks.dispatch_due",
        "schedule": 1.0,
        "options": {"expires": 5},  # skip ticks that piled up during a stall
    },
    "refresh-registrations": {
        "task": "monitors.tasks.refresh_registrations",
        "schedule": 60.0,
        "options": {"expires": 50},
    },
    "warn-of-expiries": {
        "task": "monitors.tasks.warn_of_expiries",
        "schedule": 600.0,
        "options": {"expires": 500},
    },
    "alerts": {"task": "alerts.tasks.tick", "schedule": 1.0, "options": {"expires": 5}},
    "remind": {"task": "alerts.tasks.remind", "schedule": 60.0, "options": {"expires": 50}},
    "forget-deliveries": {"task": "alerts.tasks.sweep", "schedule": 3600.0, "options": {"expires": 3000}},
    "status-mails": {"task": "statuspages.tasks.tick", "schedule": 5.0, "options": {"expires": 5}},
    "forget-subscribers": {
        "task": "statuspages.tasks.sweep",
        "schedule": 3600.0,
        "options": {"expires": 3000},
    },
    # By time of day: an interval longer than beat's uptime would never elapse.
    "keep-partitions": {
        "task": "checks.tasks.keep_partitions",
        "schedule": crontab(minute="11"),
        "options": {"expires": 3000},
    },
    "erase-deleted": {
        "task": "checks.tasks.erase_deleted",
        "schedule": crontab(minute="41"),
        "options": {"expires": 3000},
    },
    "roll-up": {"task": "checks.tasks.roll_up", "schedule": 300.0, "options": {"expires": 250}},
    "write-days": {
        "task": "monitors.tasks.write_days",
        "schedule": crontab(minute="3,33"),
        "options": {"expires": 1500},
    },
    "forget-oauth-states": {
        "task": "connectors.tasks.sweep",
        "schedule": 3600.0,
        "options": {"expires": 3000},
    },
    "forget-sessions": {"task": "accounts.web.tasks.sweep", "schedule": 3600.0, "options": {"expires": 3000}},
    "forget-audit-entries": {
        "task": "audit.tasks.sweep",
        "schedule": crontab(minute="51"),
        "options": {"expires": 3000},
    },
    "sweep": {"task": "projects.tasks.sweep", "schedule": 3600.0, "options": {"expires": 3000}},
}
