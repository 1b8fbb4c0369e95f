#!/bin/sh
# Pulsekeeper's own role and database, as DATABASE_URL names them. The image of PostgreSQL runs this once, as its
# superuser, on an empty volume. What Pulsekeeper could be talked into doing ends at its own database.
set -eu

url=${DATABASE_URL:-$(cat /run/secrets/database_url)}
account=${url#*://} && account=${account%@*}
database=${url##*/} && database=${database%%\?*}

psql --quiet --set=ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set=role="${account%%:*}" --set=password="${account#*:}" --set=database="$database" <<'SQL'
CREATE ROLE :"role" LOGIN PASSWORD :'password';
CREATE DATABASE :"database" OWNER :"role";
REVOKE CONNECT ON DATABASE :"database" FROM PUBLIC;
SQL
