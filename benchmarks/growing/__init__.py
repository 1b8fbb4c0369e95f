"""Parts of `benchmarks/growth.py`.

seeds     the accounts, monitors and results that a database is filled with
cost      CPU of this process and of PostgreSQL, and the longest transaction
steps     what each second, hour and page does
storm     a fifth of the monitors goes down at once
removal   an account with a twentieth of the monitors is deleted
upgrade   the last migrations, while the tables are used
"""
