#!/bin/sh
# Runs scrapy in a container that is restarted whenever it fails. Errors that a restart would not help become 0, so that
# it stays down: wrong options (2), a run that is gone or has other rules (5), no seeds (7), nothing fetched (9), nothing new (10).
child= stopped=
trap 'if [ "$child" ]; then kill -TERM $child; else stopped=yes; fi' TERM INT
scrapy "$@" &
child=$!
[ -z "$stopped" ] || kill -TERM $child
wait $child
code=$?
# A signal ends the first wait, and not the crawl.
while kill -0 $child 2> /dev/null; do
  wait $child
  code=$?
done
case $code in
  2 | 5 | 7 | 9 | 10)
    echo "scrapy has ended with code $code (docs/operations.md); the container is not restarted." >&2
    exit 0 ;;
esac
exit $code
