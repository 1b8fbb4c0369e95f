"""Public status pages: their content (StatusPage, PageGroup, PageMonitor), notes (PageNote, NoteUpdate), subscribers
and their mails (Subscriber, PageEvent, PageMail), and badges (Badge).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.crypto import salted_hmac

from core import ids
from core.crypto import EncryptedField
from incidents.models import Incident
from monitors.models import Monitor, SelectsByTag
from notifications.models import Notification
from projects.models import Project

CHALLENGE = "_pulsekeeper-challenge"


class DomainRecord(NamedTuple):
    """A TXT record."""

    name: str
    value: str


class StatusPage(models.Model):
    """A page of a user, or of a project: then `owner` is the project's owner.

    Every change of its content or access raises `version`, which is part of the cache keys.
    """

    class Theme(models.TextChoices):
        AUTO = "auto"
        LIGHT = "light"
        DARK = "dark"

    public_id = models.CharField(max_length=40, unique=True, default=ids.status_page_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="status_pages")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="status_pages")
    created_at = models.DateTimeField()
    version = models.IntegerField(default=1)
    name = models.CharField(max_length=200)
    slug = models.CharField(max_length=64, unique=True)
    description = models.TextField(default="")
    published = models.BooleanField(default=True)
    theme = models.CharField(max_length=5, choices=Theme.choices, default=Theme.AUTO)
    accent = models.CharField(max_length=7, null=True, help_text="#rrggbb; null: Pulsekeeper's own.")
    password_hash = models.CharField(max_length=200, default="", editable=False)
    custom_domain = models.CharField(max_length=253, null=True)
    domain_verified_at = models.DateTimeField(null=True, editable=False, help_text="Else the domain is not served.")
    domain_check_at = models.DateTimeField(null=True, editable=False, help_text="Next look-up of its TXT record.")
    domain_failures = models.SmallIntegerField(default=0, db_default=0, editable=False)
    show_window_names = models.BooleanField(
        default=False, help_text="Else a maintenance window is shown without its name."
    )
    show_locations = models.BooleanField(
        default=False, db_default=False, help_text="Whether the locations of monitors with several are shown."
    )

    class Meta:
        constraints: ClassVar = [
            # Any number of pages may claim a domain. One has proved it.
            models.UniqueConstraint(
                fields=["custom_domain"],
                condition=Q(domain_verified_at__isnull=False),
                name="verified_domain_of_one_page",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["domain_check_at"], name="page_domain_due", condition=Q(domain_check_at__isnull=False))
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.slug})"

    @property
    def served_domain(self) -> str | None:
        """The custom domain once it is verified."""
        return None if self.domain_verified_at is None else self.custom_domain

    @property
    def url(self) -> str:
        return f"{origin(self.served_domain)}/" if self.served_domain else self.built_in_url

    @property
    def built_in_url(self) -> str:
        """The URL below that of the deployment, which works with a custom domain too."""
        return f"{origin(None)}/status/{self.slug}"

    @property
    def domain_record(self) -> DomainRecord | None:
        """The TXT record that proves the custom domain. Its value depends on the page only, not on the domain."""
        if self.custom_domain is None:
            return None
        token = salted_hmac("pulsekeeper.status-page-domains", self.public_id, algorithm="sha256").hexdigest()[:40]
        return DomainRecord(f"{CHALLENGE}.{self.custom_domain}", f"pulsekeeper-domain={token}")

    @property
    def tagged_settings(self) -> Any:
        look = [
            self.name,
            self.slug,
            self.description,
            self.published,
            self.theme,
            self.accent,
            self.show_window_names,
            self.show_locations,
        ]
        groups = [
            [group.name, [[item.monitor.public_id, item.name] for item in group.monitors.all()], *group.monitor_tags]
            for group in self.groups.all()
        ]
        logo = bytes(self.logo.image).hex() if self.has_logo else None
        return [look, self.password_hash, self.custom_domain, groups, logo]

    @property
    def is_protected(self) -> bool:
        return bool(self.password_hash)

    @property
    def has_logo(self) -> bool:
        return hasattr(self, "logo")


def origin(domain: str | None) -> str:
    """Return scheme and host of a page's own domain, or those of the deployment."""
    return f"{urlsplit(settings.BASE_URL).scheme}://{domain}" if domain else settings.BASE_URL


def own_hosts() -> set[str]:
    """Return the host names of the deployment itself."""
    return {
        urlsplit(settings.BASE_URL).hostname or "",
        *(host.lower() for host in settings.ALLOWED_HOSTS if host != "*"),
    }


class PageLogo(models.Model):
    """A logo, as encoded by `statuspages.logos`."""

    page = models.OneToOneField(StatusPage, on_delete=models.CASCADE, primary_key=True, related_name="logo")
    image = models.BinaryField()
    width = models.SmallIntegerField()
    height = models.SmallIntegerField()

    def __str__(self) -> str:
        return f"logo of {self.page_id}"


class PageGroup(SelectsByTag):
    """A group of monitors under a heading, which may be empty. Ordered by id.

    Monitors that tags select have their own names on the page (`statuspages.selectors.tagged`).
    """

    page = models.ForeignKey(StatusPage, on_delete=models.CASCADE, related_name="groups")
    name = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return self.name


class PageMonitor(models.Model):
    """A monitor on a page, with its own public name: the monitor's name is private.

    `statuspages.selectors.showable` decides at each read whether it may still be shown.
    """

    page = models.ForeignKey(StatusPage, on_delete=models.CASCADE, related_name="+", db_index=False)
    group = models.ForeignKey(PageGroup, on_delete=models.CASCADE, related_name="monitors")
    monitor = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["page", "monitor"], name="monitor_once_on_a_page")]

    def __str__(self) -> str:
        return self.name


class PageNote(models.Model):
    """A text about an incident, in updates. An update with the status resolved resolves it."""

    public_id = models.CharField(max_length=40, unique=True, default=ids.page_note_id, editable=False)
    page = models.ForeignKey(StatusPage, on_delete=models.CASCADE, related_name="notes", db_index=False)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL, related_name="+")
    title = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["page", "created_at"], name="notes_of_page")]

    def __str__(self) -> str:
        return self.title

    @property
    def project_key(self) -> int | None:
        """The key of the project that its page is in."""
        return self.page.project_id


class NoteUpdate(models.Model):
    """An update of a note. Ordered by id."""

    class Status(models.TextChoices):
        INVESTIGATING = "investigating"
        IDENTIFIED = "identified"
        MONITORING = "monitoring"
        RESOLVED = "resolved"

    public_id = models.CharField(max_length=40, unique=True, default=ids.note_update_id, editable=False)
    note = models.ForeignKey(PageNote, on_delete=models.CASCADE, related_name="updates")
    status = models.CharField(max_length=13, choices=Status.choices)
    text = models.TextField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.status}: {self.text}"


class Subscriber(models.Model):
    """An e-mail address that gets mails about a page's events, after its owner confirmed it by a link.

    `address_digest` finds the row without knowing the address. Unsubscribing deletes the row.
    """

    public_id = models.CharField(max_length=40, unique=True, default=ids.subscriber_id, editable=False)
    page = models.ForeignKey(StatusPage, on_delete=models.CASCADE, related_name="subscribers", db_index=False)
    created_at = models.DateTimeField()
    address = EncryptedField()
    address_digest = models.BinaryField(max_length=32, editable=False)
    hint = models.CharField(max_length=200, help_text="a…@example.com")
    confirmed_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["page", "address_digest"], name="subscriber_once_on_a_page")
        ]
        indexes: ClassVar = [
            models.Index(fields=["created_at"], name="subscriber_unconfirmed", condition=Q(confirmed_at=None))
        ]

    def __str__(self) -> str:
        return self.hint


class PageEvent(models.Model):
    """An event of a page, sent to its subscribers once. `source` is the object that caused it.

    `title` and `text` are the content at that time. Events of outages keep `incident`, so that the same page reports
    the end, and `ended` when it did.
    """

    class Kind(models.TextChoices):
        NOTE = "note"
        DOWN = "down"
        RECOVERED = "recovered"

    page = models.ForeignKey(StatusPage, on_delete=models.CASCADE, related_name="events", db_index=False)
    kind = models.CharField(max_length=9, choices=Kind.choices)
    source = models.CharField(max_length=60)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL, related_name="+")
    title = models.CharField(max_length=300)
    text = models.TextField()
    at = models.DateTimeField()
    addressed_at = models.DateTimeField(null=True, help_text="When a mail for each subscriber was written.")
    ended = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["page", "source"], name="page_event_once")]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="page_event_new", condition=Q(addressed_at=None)),
            models.Index(fields=["id"], name="page_event_going_on", condition=Q(kind="down", ended=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.title}"


class PageMail(Notification):
    """The mail of an event to one subscriber; without an event, the request to confirm the address."""

    event = models.ForeignKey(PageEvent, null=True, on_delete=models.CASCADE, related_name="mails", db_index=False)
    subscriber = models.ForeignKey(Subscriber, on_delete=models.CASCADE, related_name="mails")

    class Meta(Notification.Meta):
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["event", "subscriber"], name="one_mail_per_event_and_subscriber"),
            models.UniqueConstraint(fields=["subscriber"], condition=Q(event=None), name="one_question_per_subscriber"),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.subscriber_id} ({self.state})"


class Badge(models.Model):
    """A monitor's badges. Everyone who has the key can see its status and uptime, and nothing else."""

    monitor = models.OneToOneField(Monitor, on_delete=models.CASCADE, primary_key=True, related_name="badge")
    key = models.CharField(max_length=40, unique=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"badge of {self.monitor_id}"
