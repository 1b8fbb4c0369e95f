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
broker_connection_max_retries = None  # the default of 100 ends a worker after an outage of 50 minutes
# A broker that becomes a replica interrupts BRPOP with an error of the channel, which would end a worker.
broker_channel_error_retry = True
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
worker_cancel_long_running_tasks_on_connection_loss = True  # there are none, and without it Celery logs a warning

timezone = "UTC"
beat_max_loop_interval = 1
beat_scheduler = "config.beat:Scheduler"  # keeps no file, which a crash could damage, and a wrong clock mislead

# Entry: task, seconds or time of day, and seconds until a message expires, so that none pile up during a stall. Tasks
# that run less often than beat restarts need a time of day: a long interval would never elapse, as it starts with beat.
_SCHEDULE: dict[str, tuple[str, float | crontab, int]] = {
    "dispatch-due": ("monitors.tasks.dispatch_due", 1, 5),
    "ask-canary": ("monitors.tasks.ask_canary", 10, 8),
    "refresh-registrations": ("monitors.tasks.refresh_registrations", 60, 50),
    "note-excess": ("monitors.tasks.note_excess", 60, 50),
    "warn-of-expiries": ("monitors.tasks.warn_of_expiries", 600, 500),
    "alerts": ("alerts.tasks.tick", 1, 5),
    "watch-locations": ("alerts.tasks.watch_locations", 5, 5),
    "announce-on-call": ("oncall.tasks.announce", 60, 50),
    "find-unreachable": ("oncall.tasks.find_unreachable", crontab(minute="23"), 3000),
    "remind": ("alerts.tasks.remind", 60, 50),
    "forget-deliveries": ("alerts.tasks.sweep", crontab(minute="7"), 3000),
    "status-mails": ("statuspages.tasks.tick", 5, 5),
    "verify-domains": ("statuspages.tasks.verify_domains", 60, 50),
    "forget-subscribers": ("statuspages.tasks.sweep", crontab(minute="17"), 3000),
    "keep-partitions": ("checks.tasks.keep_partitions", crontab(minute="11"), 3000),
    "erase-deleted": ("checks.tasks.erase_deleted", crontab(minute="41"), 3000),
    "roll-up": ("checks.tasks.roll_up", 300, 250),
    "pack": ("checks.tasks.pack", 300, 250),
    "write-days": ("monitors.tasks.write_days", crontab(minute="3,33"), 1500),
    "apply-tzdata": ("monitors.tasks.apply_tzdata", crontab(minute="21"), 3000),
    "forget-oauth-states": ("connectors.tasks.sweep", crontab(minute="27"), 3000),
    "finish-deletions": ("accounts.tasks.finish_deletions", crontab(minute="*/5"), 250),
    "forget-sessions": ("accounts.web.tasks.sweep", crontab(minute="37"), 3000),
    "forget-join-tokens": ("locations.tasks.sweep", crontab(minute="53"), 3000),
    "forget-bulk-edits": ("monitors.tasks.forget_bulk_edits", crontab(minute="*/5"), 250),
    "forget-uploads": ("manifests.tasks.sweep", crontab(minute="57"), 3000),
    "forget-audit-entries": ("audit.tasks.sweep", crontab(minute="51"), 3000),
    "sweep": ("projects.tasks.sweep", crontab(minute="47"), 3000),
}
beat_schedule = {
    name: {"task": task, "schedule": schedule, "options": {"expires": expires}}
    for name, (task, schedule, expires) in _SCHEDULE.items()
}
