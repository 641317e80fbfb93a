"""The local pool: runs many jobs at once on leased devices."""
