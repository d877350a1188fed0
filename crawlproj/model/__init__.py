"""Values shared by all rooms: URLs, records, partitions. Pure: no I/O, no clock."""
