"""Forms of pages: fields, and forms that call a service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, ClassVar, NamedTuple, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms.boundfield import BoundField
from django.utils.choices import BaseChoiceIterator
from django.utils.safestring import mark_safe

from core.api.idempotency import HEADER, Created
from core.etags import IfMatch, digest, etag
from core.forms import Renderer, ServiceForm, conditional
from core.ids import random_text
from core.text import counted
from core.zones import TIME_ZONES
from dashboard.durations import MAX_TEXT, MS_OF, format_duration, parse_duration
from dashboard.pages import PageRequest, count_request
from monitors.models import Monitor
from monitors.selectors import hidden_ids, list_monitors
from projects import access
from projects.access import Caller
from projects.idempotency import create_once

T = TypeVar("T")
Choices = list[tuple[str, str]]


class LongChoices(BaseChoiceIterator):
    """Hundreds of choices. Django would convert each item of a list, once for the field and once for its widget."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._choices)


def project_choices(caller: Caller, *, roles: Collection[str] = access.WRITERS) -> Choices:
    """Return the projects in which the caller has one of the roles, by default those in which it may create objects."""
    projects = access.accessible_projects(caller, roles=roles).order_by("name", "pk")
    return list(projects.values_list("public_id", "name"))


def monitor_choices(caller: Caller, *, writable: bool = False) -> Choices:
    """Return the choices of all monitors of the caller. `writable`: those it may change."""
    return choices_of(caller, access.writable(caller, Monitor.objects.all()) if writable else list_monitors(caller))


def choices_of(caller: Caller, monitors: QuerySet[Monitor]) -> Choices:
    """Return ids and names of the monitors, with their projects, sorted by name."""
    rows = list(monitors.select_related(None).values_list("public_id", "name", "url", "project__name"))
    only_reads = caller.is_read_only or caller.viewed  # thousands of ids
    hidden = hidden_ids(caller, [public_id for public_id, *_ in rows]) if only_reads else {}
    found = [
        (shown, f"{name or url or shown}{f' · {project}' if project else ''}")
        for public_id, name, url, project in rows
        for shown in [hidden.get(public_id, public_id)]
    ]
    return sorted(found, key=lambda choice: choice[1].casefold())


@cache
def time_zones() -> list[str]:
    """Return the time zones to offer. Forms may accept their aliases too."""
    return ["UTC", *sorted(name for name in TIME_ZONES if "/" in name and not name.startswith("Etc/"))]


@cache
def time_zone_choices() -> LongChoices:
    return LongChoices([(zone, zone.replace("_", " ")) for zone in time_zones()])


class ProjectField(forms.ChoiceField):
    """A project id, or None for the empty choice, labelled `none`."""

    def __init__(self, projects: Choices, *, none: str = "None (personal)", **kwargs: Any) -> None:
        super().__init__(choices=[("", none), *projects], required=False, label="Project", **kwargs)

    def clean(self, value: Any) -> Any:
        return super().clean(value) or None


_SHOWN = 80
"""Characters of a label in a list of checkboxes."""


class Picker(forms.CheckboxSelectMultiple):
    """Checkboxes in a scrolling list with a search field (lists.js)."""

    template_name = "dashboard/widgets/picker.html"

    def optgroups(self, name: str, value: list[Any], attrs: dict[str, Any] | None = None) -> Any:
        """Return the items of the list as HTML: a template is slow for a thousand."""
        choices: Any = self.choices
        chosen, name = set(value), escape(name)
        items = (
            f'<li><label class="choice"><input type="checkbox" name="{name}" value="{escape(key)}"'
            f"{' checked' if key in chosen else ''}>"
            f" <span>{escape(label if len(label) <= _SHOWN else f'{label[: _SHOWN - 1]}…')}</span></label></li>"
            for key, label in choices
        )
        return mark_safe("".join(items))  # noqa: S308 - escaped


class LongSelect(forms.Select):
    """A select with hundreds of choices, without groups."""

    template_name = "dashboard/widgets/long_select.html"

    def optgroups(self, name: str, value: list[Any], attrs: dict[str, Any] | None = None) -> Any:
        """Return the options as HTML: Django renders three templates for each."""
        choices: Any = self.choices
        options = (
            f'<option value="{escape(key)}"{" selected" if key in value else ""}>{escape(label)}</option>'
            for key, label in choices
        )
        return mark_safe("".join(options))  # noqa: S308 - escaped


class ChosenField(forms.TypedMultipleChoiceField):
    """Chosen items of a list on the page. Only their format is checked here; a service knows the items."""

    widget = forms.MultipleHiddenInput

    def valid_value(self, value: str) -> bool:
        return True


class MonitorsField(forms.MultipleChoiceField):
    widget = Picker

    def __init__(self, *, choices: Choices, **kwargs: Any) -> None:
        super().__init__(choices=LongChoices(choices), **kwargs)


class CommasField(forms.CharField):
    """A list of texts, separated by commas. Empty ones are left out."""

    def clean(self, value: Any) -> Any:
        return separated(super().clean(value))

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list | tuple) else value


def separated(text: str) -> list[str]:
    """Return the parts of a text between its commas, without empty ones."""
    return [part for one in text.split(",") if (part := one.strip())]


class MultilineField(forms.CharField):
    """A text with LF line endings: browsers send CRLF."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return text and text.replace("\r\n", "\n")


class DurationField(forms.CharField):
    """A duration like `5m`. Cleans to an integer in `unit` (`s` or `ms`), or None."""

    def __init__(
        self, *, unit: str = "s", minimum: int | None = None, maximum: int | None = None, **kwargs: Any
    ) -> None:
        self._ms = MS_OF[unit]
        self._minimum, self._maximum = minimum, maximum
        super().__init__(max_length=MAX_TEXT, **kwargs)

    def clean(self, value: Any) -> Any:
        text: str = super().clean(value)
        if not text:
            return None
        try:
            count = parse_duration(text) / self._ms
        except ValueError:
            raise ValidationError("Enter a duration such as 5m, 1h or 1h 30m. A number alone is in seconds.") from None
        if count != int(count):
            raise ValidationError(f"Whole {'seconds' if self._ms == MS_OF['s'] else 'milliseconds'} only.")
        if self._minimum is not None and count < self._minimum:
            raise ValidationError(f"At least {format_duration(self._minimum * self._ms)}.")
        if self._maximum is not None and count > self._maximum:
            raise ValidationError(f"At most {format_duration(self._maximum * self._ms)}.")
        return int(count)

    def prepare_value(self, value: Any) -> Any:
        return format_duration(value * self._ms) if isinstance(value, int) else value


class PlainRenderer(Renderer):
    """Renderer without a mark for optional fields. Fields may have `suggestions`, written as a user would type them."""

    field_template_name = "dashboard/widgets/field.html"


class PageForm(ServiceForm):
    def focus_error(self) -> None:
        """Focus the first field with an error: the form may be far below the top of the page."""
        for field in self.visible_fields():
            if field.errors:
                field.field.widget.attrs["autofocus"] = True
                return

    def save(self, request: PageRequest, action: Callable[[], T], *, limit: str | None = None) -> T | None:
        """Return the result of `action`, or None if the form was not sent, is invalid, or the action was refused.

        The form's errors have the reason. `limit` is the throttle that counts the request.
        """

        def limited() -> T:
            if limit is not None:
                count_request(request, limit)
            return action()

        return self.attempt(limited) if self.is_valid() else None


def _new_key() -> str:
    return random_text(20)


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as a page shows it. `content`, a value for JSON, decides whether it changed."""

    key: str
    label: str
    text: str
    content: Any

    @property
    def tag(self) -> str:
        return _tag(self.content)


def _tag(content: Any) -> str:
    return digest(content)[:12]


def write_tags(values: Iterable[Value]) -> str:
    """Return the tags of values, for a hidden field that later shows which values changed."""
    return "\n".join(f"{value.tag} {value.key}" for value in values)


def read_tags(text: str) -> Mapping[str, str]:
    """Return the tags by key. A text of another form has none that fits."""
    return {key: tag for tag, _, key in (line.partition(" ") for line in text.splitlines())}


class Difference(NamedTuple):
    """A field whose value in an outdated form is not the stored one, with both as texts.

    `tag` is that of the value in the form. `is_theirs`: only another edit changed it since the form was opened.
    """

    field: BoundField
    yours: str
    stored: str
    tag: str
    is_theirs: bool


class ObjectForm(PageForm):
    """A form that creates an object once, even if it is sent again, or that edits the object `stored`.

    Its template has to render the hidden fields. `form_key` works like the Idempotency-Key of the API. `form_etag` is
    the tag of the settings that the form was opened with, and `form_opened` has the tags of the values: if the settings
    have changed since, the form shows both values of each field that differs, and takes the stored one where the user
    chooses it (`take_stored`). It is preselected if only another edit changed the field.
    """

    form_key = forms.CharField(max_length=64, widget=forms.HiddenInput, initial=_new_key)
    form_etag = forms.CharField(max_length=64, widget=forms.HiddenInput, required=False)
    form_opened = forms.CharField(widget=forms.HiddenInput, required=False)
    data: Any  # a copy of the input, which the form may change
    secret_fields: Collection[str] = ()
    """Fields whose stored value is never shown."""

    def __init__(self, data: Any = None, *, stored: Any = None, **kwargs: Any) -> None:
        super().__init__(None if data is None else data.copy(), **kwargs)
        self.stored = stored
        self.differences: list[Difference] = []
        if stored is not None:
            del self.fields["form_key"]
            self.fields["form_etag"].initial = etag(stored)
            self.fields["form_opened"].initial = self._opened
        else:
            del self.fields["form_etag"], self.fields["form_opened"]

    @property
    def if_match(self) -> IfMatch:
        """The tag of the settings that this form was compared with. None if it was sent without a tag."""
        return {etag(self.stored)} if self.data.get("form_etag") else None

    def compared(self, *, blank: bool = False) -> Iterator[BoundField]:
        """Return the fields that may differ from the stored object. `blank`: also those of rows without input."""
        return iter(self.visible_fields())

    def values(self) -> list[Value]:
        """Return the stored values of the fields."""
        return [
            Value(field.html_name, str(field.label), _in_words(field, texts), texts)
            for field in self.compared(blank=True)
            for texts in [_texts(field, field.initial)]
        ]

    def _opened(self) -> str:
        return write_tags(self.values())

    def full_clean(self) -> None:
        """Validate, with the stored values that the user chose. Refuse an outdated form if values differ.

        A field that was edited after the choice keeps what was typed: its tag is not the one beside the choice.
        """
        if not self.is_bound or self.stored is None:
            return super().full_clean()
        chosen = self.data.getlist("take_stored")
        for field in self.compared() if chosen else ():
            shown = self.data.get(f"shown-{field.html_name}")
            if field.html_name in chosen and shown in (None, _tag(_texts(field, field.data))):
                self.data.setlist(field.html_name, _sent(field, field.initial))
        super().full_clean()
        sent, current = self.data.get("form_etag"), etag(self.stored)
        if sent and sent != current:
            opened = read_tags(self.data.get("form_opened", ""))
            self.differences = [found for field in self.compared() if (found := _difference(field, opened))]
            self.data["form_etag"] = current
            if self.differences:
                self.add_error(None, "The settings were changed after you opened this form.")
        self.data["form_opened"] = self._opened()
        return None

    @property
    def sent(self) -> set[str]:
        """Return the names of the fields to send: all for a new object, the changed ones for a stored one."""
        return set(self.fields if self.stored is None else self.changed_data)

    def create(self, request: PageRequest, make: Callable[[], Any], *, limit: str | None = None) -> Created | None:
        """Return what `make` creates, or what this form created earlier. Return None like `save`.

        `make` returns an object with a public id, or `Created` to add values that are shown only once, like a secret.
        """

        def create() -> Created:
            made = make()
            return made if isinstance(made, Created) else Created(made.public_id)

        def create_or_recall() -> Created:
            # Django renders a different CSRF token with each page.
            content = {name: values for name, values in request.POST.lists() if name != "csrfmiddlewaretoken"}
            key = f"page {self.cleaned_data['form_key']}"
            return create_once(request.caller, key=key, content=[request.path, content], create=create, now=request.now)

        return self.save(request, create_or_recall, limit=limit)

    def refuse(self, field: str | None, reason: str) -> None:
        """Give the form a new key if it was changed after it was sent, so that it creates another object."""
        if field != HEADER:
            return super().refuse(field, reason)
        self.data["form_key"] = _new_key()
        self.add_error(None, "This form was already sent. Send it again to create another.")
        return None


def _sent(field: BoundField, value: Any) -> list[str]:
    """Return what a browser sends of a field with this value."""
    value = field.field.prepare_value(value)
    if value is None or isinstance(value, bool):
        return ["on"] if value else []
    shown = field.field.widget.format_value(value)
    return [text for one in (shown if isinstance(shown, list | tuple) else [shown]) if (text := str(one or ""))]


def _texts(field: BoundField, value: Any) -> list[str]:
    """Return a value of a field as texts. Choices that the user cannot see are left out."""
    labels = {str(key): str(label) for key, label in getattr(field.field, "choices", ())}
    sent = [text.replace("\r\n", "\n") for text in _sent(field, value)]
    return sorted(labels[text] for text in sent if text in labels) if labels else sent


def _in_words(field: BoundField, texts: list[str], *, hidden: str = "hidden") -> str:
    if field.name in getattr(field.form, "secret_fields", ()):
        return hidden
    if isinstance(field.field, forms.BooleanField):
        return "Yes" if texts else "No"
    return "; ".join(texts)


def _difference(field: BoundField, opened: Mapping[str, str]) -> Difference | None:
    """Return the values of a field if they differ."""
    yours, stored = _texts(field, field.data), _texts(field, field.initial)
    if yours == stored:
        return None
    words = _in_words(field, yours, hidden="the value that you entered"), _in_words(field, stored)
    tag = _tag(yours)
    return Difference(field, *words, tag, is_theirs=opened.get(field.html_name) == tag)


def selected(count: int, tags: Collection[str], *, noun: str = "selected monitor") -> str:
    """Return what an object with selected monitors covers: `2 selected monitors, tags web, db`."""
    parts = [counted(count, noun)] if count or not tags else []
    return ", ".join([*parts, f"tag{'' if len(tags) == 1 else 's'} {', '.join(tags)}"] if tags else parts)


class ScopeForm(ObjectForm):
    """The form of an object that applies to all monitors or to some. Subclasses define `monitors`, the choice.

    `needs` names the field that a choice needs, with the error if it is empty.
    """

    needs: ClassVar = {"chosen": ("monitor_ids", "Select at least one monitor or tag.")}

    only_writable: ClassVar = False
    """Whether monitors that the caller can only read may not be selected."""

    def __init__(self, data: Any = None, *, caller: Caller, chosen_label: str, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.projects = project_choices(caller)
        choices = monitor_choices(caller, writable=self.only_writable)
        self.fields["monitor_ids"] = conditional(MonitorsField(choices=choices, label=chosen_label))
        self.fields["monitor_tags"] = conditional(
            CommasField(
                label="Monitors with any of these tags",
                help_text="Separated by commas. Monitors that get one of them later are covered, too.",
                widget=forms.TextInput(attrs={"autocomplete": "off"}),
                empty_value="",
            )
        )

    def require(self, name: str, error: str) -> None:
        """Add an error to a conditional field that is empty."""
        if not self.cleaned_data.get(name) and name not in self.errors:
            self.add_error(name, error)

    def clean(self) -> None:
        super().clean()
        need = self.needs.get(self.cleaned_data.get("monitors", ""))
        if need and not (need[0] == "monitor_ids" and self.cleaned_data.get("monitor_tags")):
            self.require(*need)

    def scope(self) -> dict[str, Any]:
        """Return the members of the body about monitors, for a stored object only if one was changed."""
        if not self.sent & {"monitors", "monitor_tags", *(name for name, _ in self.needs.values())}:
            return {}
        scope = {"monitors": self.cleaned_data["monitors"]}
        need = self.needs.get(scope["monitors"])
        # A member may not see all selected monitors, and keeps them by changing the tags only.
        names = [] if need is None else [need[0], "monitor_tags"] if scope["monitors"] == "chosen" else [need[0]]
        is_new = self.stored is None or "monitors" in self.sent
        return scope | {name: self.cleaned_data[name] for name in names if is_new or name in self.sent}
