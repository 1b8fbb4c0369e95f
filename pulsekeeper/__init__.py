"""The command `pulsekeeper`: for machines that have neither the server's database nor its secrets.

In the wheel, the packages that it imports are inside this one: their names are too general for the top level of
another project's environment.
"""
