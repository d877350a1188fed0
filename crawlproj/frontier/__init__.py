"""Which URL next: admission, leases, ownership, and the part of the frontier a shard keeps in memory."""
