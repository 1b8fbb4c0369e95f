#!/bin/sh
# Create Pulsekeeper's role and database from DATABASE_URL. The PostgreSQL image runs this once, as superuser, on an
# empty volume. The role can access its own database only.
set -eu

url=${DATABASE_URL:-$(cat /run/secrets/database_url)}
account=${url#*://} && account=${account%@*}
database=${url##*/} && database=${database%%\?*}

# Every local user can read arguments of commands.
PASSWORD=${account#*:} psql --quiet --set=ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set=role="${account%%:*}" --set=database="$database" <<'SQL'
\getenv password PASSWORD
CREATE ROLE :"role" LOGIN PASSWORD :'password';
CREATE DATABASE :"database" OWNER :"role";
REVOKE CONNECT ON DATABASE :"database" FROM PUBLIC;
SQL
