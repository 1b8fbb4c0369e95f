"""Settings of every type that sends a text and judges what it receives."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Self

import msgspec

from checks.spec import ContentRule, RuleType
from core.errors import ValidationFailed
from monitors.types.base import MonitorType
from monitors.types.settings import MonitorConfig, Setting, Settings

MAX_BODY, MAX_RULES = 8_192, 4
ENCODINGS = ("text", "hex", "base64")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
TEXT_RULES = frozenset({RuleType.TEXT_CONTAINS, RuleType.TEXT_ABSENT})


MAX_RULE_VALUE, MAX_RULE_PATH = 256, 128


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """An assertion on what was received."""

    type: RuleType
    value: str | None = None
    path: str | None = None
    equals: str | None = None


class ContentSettings(Settings, frozen=True, kw_only=True):
    content_rules: Annotated[
        tuple[Rule, ...],
        Setting(
            description="port, udp and dns accept text rules only, ping accepts none. Those of dns see sorted records, "
            "one per line.",
            section="rules",
            max_length=MAX_RULES,
            public=True,
        ),
    ] = ()
    request_body: Annotated[
        str | None,
        Setting(
            description="http: only with POST, PUT, PATCH and DELETE. port and udp: what to send; udp at most 512 "
            "bytes. Not for dns and ping.",
            label="Body",
            help="With POST, PUT, PATCH and DELETE only. JSON, unless a Content-Type header says otherwise.",
            position=120,
            max_length=MAX_BODY,
            blank=True,
            multiline=True,
        ),
    ] = None
    request_body_encoding: Annotated[
        str,
        Setting(
            description="Encoding of request_body. With hex and base64, rules are compared with the received "
            "bytes as lower-case hex. http types accept text only.",
            label="Encoding of the body",
            help="With hex and base64, rules are compared with the received bytes as lower-case hex.",
            position=121,
            choices=ENCODINGS,
        ),
    ] = "text"

    def settle(self, kind: MonitorType) -> Self:
        self._check_rules(kind)
        self._check_body(kind)
        return self

    def without_secrets(self, *, moved: bool) -> Self:
        return msgspec.structs.replace(self, request_body=None) if moved else self

    @property
    def is_binary(self) -> bool:
        return self.request_body_encoding != "text"

    def body_bytes(self) -> bytes | None:
        """Return what to send, None for nothing. Raises ValueError if it is not of its encoding."""
        if self.request_body is None:
            return None
        if self.request_body_encoding == "hex":
            return bytes.fromhex(self.request_body)
        if self.request_body_encoding == "base64":
            return base64.b64decode("".join(self.request_body.split()), validate=True)
        return self.request_body.encode("utf-8", "replace")

    def probe_rules(self) -> tuple[ContentRule, ...]:
        return tuple(
            ContentRule(rule.type, rule.value or "", rule.path or "", rule.equals) for rule in self.content_rules
        )

    def _check_rules(self, kind: MonitorType) -> None:
        if len(self.content_rules) > MAX_RULES:
            raise ValidationFailed(f"at most {MAX_RULES} rules.", field="content_rules")
        if self.content_rules and not kind.rule_types:
            raise ValidationFailed(f"a {kind.name} monitor has no rules.", field="content_rules")
        if kind.required_rules and not kind.required_rules & {rule.type for rule in self.content_rules}:
            article = "an" if kind.name[0] in "aeiou" else "a"
            names = " or ".join(rule.value for rule in RuleType if rule in kind.required_rules)
            raise ValidationFailed(
                f"{article} {kind.name} monitor needs at least one {names} rule.", field="content_rules"
            )
        for index, rule in enumerate(self.content_rules):
            where = f"content_rules[{index}]"
            if rule.type not in kind.rule_types:
                raise ValidationFailed(
                    f"{rule.type} needs an http answer; a {kind.name} monitor takes "
                    f"{' and '.join(each.value for each in RuleType if each in kind.rule_types)}.",
                    field=f"{where}.type",
                )
            if rule.type is RuleType.JSON_FIELD:
                if not rule.path:
                    raise ValidationFailed("is required for json_field.", field=f"{where}.path")
            elif not rule.value:
                raise ValidationFailed(f"is required for {rule.type}.", field=f"{where}.value")
            elif self.is_binary and "request_body_encoding" in kind.asked and not _HEX.fullmatch(rule.value):
                raise ValidationFailed("must be lower-case hex, for example 0d0a.", field=f"{where}.value")

    def _check_body(self, kind: MonitorType) -> None:
        if self.request_body_encoding not in kind.body_encodings:
            accepted = " or ".join(kind.body_encodings)
            raise ValidationFailed(f"must be {accepted} for type {kind.name}.", field="request_body_encoding")
        if self.request_body is None:
            return
        if len(self.request_body) > MAX_BODY:
            raise ValidationFailed(f"must be at most {MAX_BODY} characters.", field="request_body")
        if self.request_body and kind.max_body_bytes == 0:
            raise ValidationFailed(f"a {kind.name} monitor sends no body.", field="request_body")
        try:
            size = len(self.body_bytes() or b"")
        except (ValueError, binascii.Error):
            example = "0d0a" if self.request_body_encoding == "hex" else "DQo="
            raise ValidationFailed(
                f"is not {self.request_body_encoding}, for example {example}.", field="request_body"
            ) from None
        if kind.max_body_bytes is not None and size > kind.max_body_bytes:
            raise ValidationFailed(
                f"must be at most {kind.max_body_bytes} bytes once decoded, and has {size}.", field="request_body"
            )


def content_of(config: MonitorConfig) -> ContentSettings:
    assert isinstance(config.own, ContentSettings)
    return config.own
