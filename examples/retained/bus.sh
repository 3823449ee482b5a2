#!/bin/sh
# A bus that reports where it is, retained, every so often: there is something to wait for.
#
#     sh examples/retained/bus.sh [HOST [PORT [SECONDS [REPORTS]]]]
#
# While it drives, subscribe to bus/7/pos from another terminal, and ask why it came when it came:
#
#     mosquitto_sub -C 1 -v -t bus/7/pos
#     locus retained explain bus/7/pos
set -eu

host=${1:-127.0.0.1} port=${2:-1883} seconds=${3:-2} reports=${4:-60}
echo "Bus 7 reports every $seconds s, $reports times. Ctrl-C ends it."
for report in $(seq "$reports"); do
    mosquitto_pub -h "$host" -p "$port" -q 1 -r -t bus/7/pos -m "{\"lon\": 126.97, \"lat\": 37.56, \"report\": $report}"
    sleep "$seconds"
done
