"Clients that others wrote, each behind a small program with the same command line; see contract.py."
