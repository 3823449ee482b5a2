#!/bin/sh
# Geofencing with mosquitto_pub and mosquitto_sub, which know nothing of Locus.
#
#     sh examples/plain-shell/geofence.sh [HOST [PORT]]
#
# Three taxis leave their last positions at the broker. Who subscribes gets those that are where it asks.
set -eu

host=${1:-127.0.0.1} port=${2:-1883}
pub() { mosquitto_pub -h "$host" -p "$port" -q 1 "$@"; }
sub() { mosquitto_sub -h "$host" -p "$port" -v -W 5 "$@"; }

pub -r -t taxis/1/pos -m '{"lon": 126.9770, "lat": 37.5650, "speed": 12}'
pub -r -t taxis/2/pos -m '{"lon": 126.9800, "lat": 37.5680, "speed": 43}'
pub -r -t taxis/3/pos -m '{"lon": 126.9244, "lat": 37.5260, "speed": 55}'

echo 'Faster than 30 within 500 m of the city hall:'
sub -C 1 -t '$geo/circle:126.9779,37.5663,500m/$where/speed>30/taxis/+/pos'

echo 'On the island:'
pub -r -t locus/fence/island -m '{"type": "Polygon", "coordinates":
    [[[126.91, 37.53], [126.93, 37.515], [126.945, 37.52], [126.92, 37.54], [126.91, 37.53]]]}'
sub -C 1 -t '$geo/fence:island/taxis/+/pos'
