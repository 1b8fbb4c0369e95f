from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard import channels, connectors, incidents, projects, security_log, status_pages, tokens, windows
from dashboard.monitors import detail, editing, notified, overview, schedules, signals
from dashboard.pages import home

urlpatterns = [
    path("", home),
    path("monitors", overview.overview, name="monitors"),
    path("monitors/live", overview.live, name="monitors_live"),
    path("monitors/actions", overview.act, name="monitors_act"),
    # Before the page of a monitor, whose URL these would match.
    path("monitors/new", editing.new, name="monitor_new"),
    path("monitors/notified", notified.preview, name="notified_preview"),
    path("monitors/schedule", schedules.preview, name="schedule_preview"),
    path("monitors/<id:monitor_id>/edit", editing.edit, name="monitor_edit"),
    path("monitors/<id:monitor_id>", detail.show, name="monitor"),
    path("monitors/<id:monitor_id>/live", detail.live, name="monitor_live"),
    path("monitors/<id:monitor_id>/check", detail.check, name="monitor_check"),
    path("monitors/<id:monitor_id>/latency", detail.latency, name="monitor_latency"),
    path("monitors/<id:monitor_id>/signals", signals.log, name="monitor_signals"),
    path("monitors/<id:monitor_id>/badges", detail.badges, name="monitor_badges"),
    path("monitors/<id:monitor_id>/badges/give", detail.create_badges, name="monitor_badges_give"),
    path("monitors/<id:monitor_id>/badges/take", detail.delete_badges, name="monitor_badges_take"),
    path("projects", projects.index, name="projects"),
    path("projects/<id:project_id>", projects.show, name="project"),
    path("projects/<id:project_id>/log", security_log.of_project, name="project_log"),
    path("projects/<id:project_id>/rename", projects.rename, name="project_rename"),
    path("projects/<id:project_id>/delete", projects.delete, name="project_delete"),
    path("projects/<id:project_id>/members", projects.add_member, name="project_members"),
    path("projects/<id:project_id>/members/<id:member_id>", projects.change_member, name="project_member"),
    path("tokens", tokens.index, name="tokens"),
    path("tokens/new", tokens.new, name="token_new"),
    path("tokens/<id:token_id>/revoke", tokens.revoke, name="token_revoke"),
    path("incidents", incidents.index, name="incidents"),
    path("incidents/declare", incidents.declare, name="incident_declare"),
    path("incidents/<id:incident_id>", incidents.show, name="incident"),
    path("incidents/<id:incident_id>/live", incidents.live, name="incident_live"),
    path("incidents/<id:incident_id>/acknowledge", incidents.acknowledge, name="incident_acknowledge"),
    path("incidents/<id:incident_id>/comments", incidents.comment, name="incident_comment"),
    path("incidents/<id:incident_id>/resolve", incidents.resolve, name="incident_resolve"),
    path("alert-channels", channels.index, name="alert_channels"),
    path("alert-channels/new", channels.create, name="alert_channel_new"),
    path("alert-channels/<id:channel_id>", channels.show, name="alert_channel"),
    path("alert-channels/<id:channel_id>/edit", channels.edit, name="alert_channel_edit"),
    path("alert-channels/<id:channel_id>/delete", channels.delete, name="alert_channel_delete"),
    path("alert-channels/<id:channel_id>/test", channels.test, name="alert_channel_test"),
    path("alert-channels/<id:channel_id>/ask-again", channels.ask_again, name="alert_channel_ask_again"),
    path(
        "alert-channels/<id:channel_id>/deliveries/<id:delivery_id>/replay",
        channels.replay,
        name="alert_delivery_replay",
    ),
    path("connectors", connectors.index, name="connectors"),
    path("connectors/<id:word>", connectors.choose, name="connector"),
    path("connectors/<id:word>/link", connectors.link, name="connector_link"),
    path("connectors/<id:word>/disconnect", connectors.disconnect, name="connector_disconnect"),
    path("maintenance", windows.index, name="maintenance"),
    path("maintenance/new", windows.create, name="window_new"),
    path("maintenance/<id:window_id>", windows.edit, name="window"),
    path("maintenance/<id:window_id>/end", windows.end, name="window_end"),
    path("maintenance/<id:window_id>/delete", windows.delete, name="window_delete"),
    path("status-pages", status_pages.index, name="status_pages"),
    path("status-pages/new", status_pages.create, name="status_page_new"),
    path("status-pages/<id:page_id>", status_pages.show, name="status_page"),
    path("status-pages/<id:page_id>/edit", status_pages.edit, name="status_page_edit"),
    path("status-pages/<id:page_id>/verify-domain", status_pages.verify_domain, name="status_page_verify_domain"),
    path("status-pages/<id:page_id>/delete", status_pages.delete, name="status_page_delete"),
    path("status-pages/<id:page_id>/logo", status_pages.set_logo, name="status_page_logo"),
    path("status-pages/<id:page_id>/logo/remove", status_pages.remove_logo, name="status_page_logo_remove"),
    path("status-pages/<id:page_id>/notes", status_pages.create_note, name="status_page_note"),
    path(
        "status-pages/<id:page_id>/notes/<id:note_id>/updates", status_pages.add_update, name="status_page_note_update"
    ),
    path(
        "status-pages/<id:page_id>/notes/<id:note_id>/delete", status_pages.delete_note, name="status_page_note_delete"
    ),
]
