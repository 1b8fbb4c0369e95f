from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models

MEMBER = models.Q(('invitation_digest__isnull', True), ('invited_email__isnull', True), ('invited_until__isnull', True), ('user__isnull', False))
INVITATION = models.Q(('invitation_digest__isnull', False), ('invited_email__isnull', False), ('invited_until__isnull', False), ('role__in', ['admin', 'member', 'viewer']), ('user__isnull', True))
# Going back leaves viewers who are members, to whom old code gives no access.
BEFORE = """
    DELETE FROM projects_membership WHERE user_id IS NULL AND role = 'viewer';
    ALTER TABLE projects_membership ADD CONSTRAINT member_or_invitation CHECK (
        invited_email IS NULL AND invitation_digest IS NULL AND invited_until IS NULL AND user_id IS NOT NULL
        OR invited_email IS NOT NULL AND invitation_digest IS NOT NULL AND invited_until IS NOT NULL
           AND role IN ('admin', 'member') AND user_id IS NULL
    ) NOT VALID
"""


class Migration(migrations.Migration):

    atomic = False  # the rows are validated without stopping writers

    dependencies = [
        ('projects', '0002_from_groups'),
    ]

    operations = [
        migrations.AlterField(
            model_name='membership',
            name='role',
            field=models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('member', 'Member'), ('viewer', 'Viewer')], max_length=10),
        ),
        # IF EXISTS: after an interrupted run it may be gone.
        migrations.RunSQL('ALTER TABLE projects_membership DROP CONSTRAINT IF EXISTS member_or_invitation', BEFORE),
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.RemoveConstraint(model_name='membership', name='member_or_invitation')],
        ),
        AddConstraintNotValid(
            model_name='membership',
            constraint=models.CheckConstraint(condition=models.Q(MEMBER, INVITATION, _connector='OR'), name='member_or_invitation'),
        ),
        ValidateConstraint(model_name='membership', name='member_or_invitation'),
    ]
