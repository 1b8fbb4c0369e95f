"""Monitors that asked for `check_domain` before it was built get their registration."""

from django.db import migrations
from django.utils import timezone

from checks.domains import registrable_domain
from checks.probes.request import BadRequestError, parse_target


def watch(apps, schema_editor):
    monitors = apps.get_model('monitors', 'Monitor').objects
    registrations = apps.get_model('monitors', 'DomainRegistration').objects
    waiting = monitors.filter(check_domain=True, registration=None).exclude(type='heartbeat')
    for pk, url in waiting.values_list('pk', 'url').iterator():
        try:
            host = parse_target(url).host
        except BadRequestError:
            continue
        domain = None if host is None else registrable_domain(host)
        if domain is not None:
            registration, _ = registrations.get_or_create(name=domain, defaults={'next_lookup_at': timezone.now()})
            # Only if the address is still the one that was read.
            monitors.filter(pk=pk, url=url, check_domain=True).update(registration=registration)


class Migration(migrations.Migration):

    dependencies = [
        ('monitors', '0003_registrations'),
    ]

    operations = [migrations.RunPython(watch, migrations.RunPython.noop)]
