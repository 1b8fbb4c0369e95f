"""Action names of the audit log: `noun.verb`. They are fixed, because people filter and alert by them.

Plain Python. A test compares the table in docs/operate/audit.md with this module. Published names keep their meaning,
even if they are no longer recorded.
"""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Action names, with a description for people."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Action:
        action = str.__new__(cls, value)
        action._value_ = value
        action.meaning = meaning
        return action

    SIGN_IN_SUCCEEDED = "sign_in.succeeded", "Signed in"
    SIGN_IN_FAILED = "sign_in.failed", "Failed to sign in"
    OPERATOR_LINK_CREATED = "operator_link.created", "Created a link to sign in with, on the server"
    SECOND_FACTOR_USED = "second_factor.used", "Used a code of the second factor"
    SECOND_FACTOR_FAILED = "second_factor.failed", "Entered a wrong code of the second factor"
    SECOND_FACTOR_ENABLED = "second_factor.enabled", "Turned the second factor on"
    SECOND_FACTOR_DISABLED = "second_factor.disabled", "Turned the second factor off"
    RECOVERY_CODES_CREATED = "recovery_codes.created", "Created new recovery codes"
    PASSWORD_CHANGED = "password.changed", "Changed the password"
    PASSWORD_RESET = "password.reset", "Set a new password without the old one"
    PASSWORD_REMOVED = "password.removed", "Removed the password"
    EMAIL_CHANGED = "email.changed", "Changed the e-mail address"
    SOCIAL_ACCOUNT_LINKED = "social_account.linked", "Linked an account to sign in with"
    SOCIAL_ACCOUNT_UNLINKED = "social_account.unlinked", "Unlinked an account to sign in with"
    SESSION_REVOKED = "session.revoked", "Ended a session"
    ACCOUNT_CREATED = "account.created", "Created the account"
    ACCOUNT_UPDATED = "account.updated", "Changed the permissions of the account"
    ACCOUNT_EXPORTED = "account.exported", "Exported the account"
    ACCOUNT_DELETED = "account.deleted", "Deleted the account"
    PLAN_CHANGED = "plan.changed", "Changed the plan"
    PROJECT_CREATED = "project.created", "Created the project"
    PROJECT_UPDATED = "project.updated", "Changed the project"
    PROJECT_DELETED = "project.deleted", "Deleted the project"
    MEMBER_ADDED = "member.added", "Added a member"
    MEMBER_INVITED = "member.invited", "Invited a person"
    MEMBER_JOINED = "member.joined", "Accepted an invitation"
    MEMBER_UPDATED = "member.updated", "Changed the role of a member"
    MEMBER_REMOVED = "member.removed", "Removed a member"
    MEMBER_LEFT = "member.left", "Left the project"
    INVITATION_REVOKED = "invitation.revoked", "Withdrew an invitation"
    MONITOR_CREATED = "monitor.created", "Created a monitor"
    MONITOR_UPDATED = "monitor.updated", "Changed a monitor"
    MONITOR_PAUSED = "monitor.paused", "Paused a monitor"
    MONITOR_RESUMED = "monitor.resumed", "Resumed a monitor"
    MONITOR_MUTED = "monitor.muted", "Muted a monitor"
    MONITOR_UNMUTED = "monitor.unmuted", "Unmuted a monitor"
    MONITOR_DELETED = "monitor.deleted", "Deleted a monitor"
    MONITOR_RELEASED = "monitor.released", "Moved a monitor to another owner"
    MONITOR_RECEIVED = "monitor.received", "Moved a monitor here from another owner"
    MONITORS_CHANGED = "monitors.changed", "Changed several monitors at once"
    EDIT_UNDONE = "edit.undone", "Undid a change of several monitors"
    MONITORS_IMPORTED = "monitors.imported", "Imported monitors of another product"
    IMPORT_UNDONE = "import.undone", "Undid an import of monitors"
    TOKEN_CREATED = "token.created", "Created a token"
    TOKEN_REVOKED = "token.revoked", "Revoked a token"
    LOCATION_CREATED = "location.created", "Created a location"
    LOCATION_UPDATED = "location.updated", "Changed a location"
    LOCATION_DELETED = "location.deleted", "Deleted a location"
    JOIN_TOKEN_ISSUED = "join_token.issued", "Issued a join token of a location"
    AGENT_JOINED = "agent.joined", "An agent joined a location"
    AGENT_REVOKED = "agent.revoked", "Revoked an agent of a location"
    CHANNEL_CREATED = "channel.created", "Created an alert channel"
    CHANNEL_UPDATED = "channel.updated", "Changed an alert channel"
    CHANNEL_CONFIRMED = "channel.confirmed", "Confirmed an alert address"
    CHANNEL_DELETED = "channel.deleted", "Deleted an alert channel"
    ON_CALL_SCHEDULE_CREATED = "schedule.created", "Created an on-call schedule"
    ON_CALL_SCHEDULE_UPDATED = "schedule.updated", "Changed an on-call schedule"
    ON_CALL_SCHEDULE_DELETED = "schedule.deleted", "Deleted an on-call schedule"
    CALENDAR_LINK_CREATED = "calendar_link.created", "Created the calendar link of an on-call schedule"
    ESCALATION_POLICY_CREATED = "escalation_policy.created", "Created an escalation policy"
    ESCALATION_POLICY_UPDATED = "escalation_policy.updated", "Changed an escalation policy"
    ESCALATION_POLICY_DELETED = "escalation_policy.deleted", "Deleted an escalation policy"
    CONTACT_UPDATED = "contact.updated", "Changed how the person is reached"
    DOMAIN_VERIFIED = "domain.verified", "Verified the domain of a status page"
    DOMAIN_LOST = "domain.lost", "Lost the domain of a status page to another page"
    NETWORKS_ALLOWED = "networks.allowed", "Allowed checks of private networks"
    NETWORKS_REFUSED = "networks.refused", "Refused checks of private networks"
    CONNECTOR_LINKED = "connector.linked", "Linked a provider"
    CONNECTOR_UNLINKED = "connector.unlinked", "Unlinked a provider"


MEANINGS = {action.value: action.meaning for action in Action}
