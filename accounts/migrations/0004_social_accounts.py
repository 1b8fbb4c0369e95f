import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# Until now social-auth-app-django kept them: what is there is copied. Its tables stay for processes of the version before,
# which look at its migrations, too; `manage.py finish_upgrade` removes both. Meanwhile this version deletes accounts
# without knowing of those tables, so what they have of one goes along with it.
TAKE_OVER = """
DO $$
DECLARE
    old name;
BEGIN
    IF to_regclass('social_auth_usersocialauth') IS NOT NULL THEN
        INSERT INTO accounts_socialaccount (user_id, provider, uid, created_at)
        SELECT user_id, provider, uid, created FROM social_auth_usersocialauth
        ON CONFLICT DO NOTHING;
        SET CONSTRAINTS ALL IMMEDIATE;
        FOR old IN SELECT conname FROM pg_constraint
                   WHERE conrelid = 'social_auth_usersocialauth'::regclass AND contype = 'f' LOOP
            EXECUTE format('ALTER TABLE social_auth_usersocialauth DROP CONSTRAINT %I', old);
        END LOOP;
        ALTER TABLE social_auth_usersocialauth ADD FOREIGN KEY (user_id) REFERENCES accounts_user ON DELETE CASCADE;
    END IF;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_verified_addresses")]

    operations = [
        migrations.CreateModel(
            name="SocialState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("provider", models.CharField(max_length=64)),
                ("state", models.CharField(max_length=64, unique=True)),
                ("begun_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="SocialAccount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("provider", models.CharField(max_length=32)),
                ("uid", models.CharField(help_text="The provider's id of the person.", max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="social_accounts",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("provider", "uid"), name="social_account_opens_one_account"),
                    models.UniqueConstraint(fields=("user", "provider"), name="one_social_account_per_provider"),
                ],
            },
        ),
        # Backwards what was taken over stays where it is: the app that kept it is not installed.
        migrations.RunSQL(TAKE_OVER, migrations.RunSQL.noop),
    ]
