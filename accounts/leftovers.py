"""What only the version before needs: kept by migrations, and removed when no process of it is left."""

from __future__ import annotations

from django.db import connection, transaction

from core.db import hold

# Social accounts that a process of the version before has stored after they were copied. What was stored earlier is not
# looked at again: its person may have removed it since.
_LATE = """
INSERT INTO accounts_socialaccount (user_id, provider, uid, created_at)
SELECT user_id, provider, uid, created FROM social_auth_usersocialauth
WHERE created > (
    SELECT applied FROM django_migrations WHERE app = 'accounts' AND name = '0004_social_accounts'
)
ON CONFLICT DO NOTHING
"""
_DROP = """
DROP TABLE social_auth_usersocialauth, social_auth_nonce, social_auth_association, social_auth_code,
           social_auth_partial;
DELETE FROM django_migrations WHERE app IN ('social_django', 'default', 'social_auth');
"""


def remove_leftovers() -> list[str]:
    """What was removed, each thing in words. Two at once do no harm: the second one waits, and finds nothing."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold("leftovers")
        cursor.execute("SELECT to_regclass('social_auth_usersocialauth') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return []
        cursor.execute(_LATE)
        copied = cursor.rowcount
        cursor.execute(_DROP)
    return [f"the tables of social-auth ({copied} accounts were taken over at last)"]
