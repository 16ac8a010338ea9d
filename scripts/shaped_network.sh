#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command on a network of its own: namespaces as hosts, joined by veth links of given rates.
#
#   scripts/shaped_network.sh NAME star RATE... [fair|fifo] -- COMMAND...
#       hosts NAME-0, NAME-1 ... at one switch; host i sends and receives at RATE i (Mbit/s), shaped
#       on both ends of its link. RATE 0: not shaped. MTU 9000, send buffers of 256 KiB.
#   scripts/shaped_network.sh NAME trunk RATE [fair|fifo] -- COMMAND...
#       hosts 0 and 3 at one switch, 1 and 2 at another, joined by a trunk of RATE Mbit/s, so that a
#       pipeline over 0, 1, 2, 3 has two flows in each direction on it. MTU 1500, packets handed on
#       in groups of up to 8, send buffers of 1 MiB.
#   scripts/shaped_network.sh probe
#       does nothing but say in one line why this cannot work here, with exit status 77.
#
# fair (default): every shaped link has a queue per flow, served in turn, and one for
# acknowledgements, which go first; fifo: one token bucket for all.
# Host i has the address 10.77.0.(i+1) on its interface eth0; to run something there:
# `ip netns exec NAME-i COMMAND`. Nothing outside of these namespaces is touched, and they are
# removed when the command ends or this script is interrupted. Exit status: the command's; 69 where
# the network could not be made. Nothing is ever lost on these links, so that windows are as wide as
# the send buffers; congestion control is reno, which every namespace may choose.
# Needs root, iproute2, and a kernel with veth, bridge, sch_tbf, sch_htb and cls_u32.
set -eu

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}

# shellcheck disable=SC2317  # called by the trap
cleanup() {
  status=$?
  trap - EXIT INT TERM HUP
  for namespace in $made; do
    ip netns pids "$namespace" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns delete "$namespace" 2>/dev/null || true
  done
  if [ "$status" != 0 ] && [ "$making" ]; then status=69; fi
  exit "$status"
}

# namespace NAME
namespace() {
  ip netns add "$1"
  made="$made $1"
  ip -n "$1" link set lo up
}

# host NUMBER SWITCH MTU WMEM: a namespace with eth0, whose other end is port NUMBER of SWITCH.
# Packets leave in groups of at most $segments: what HTB serves in turn should be small, and still
# not cost a softirq per 1500 bytes.
host() {
  namespace "$name-$1"
  ip link add eth0 netns "$name-$1" mtu "$3" type veth peer name "port$1" mtu "$3" netns "$2"
  ip -n "$name-$1" address add "10.77.0.$(($1 + 1))/24" dev eth0
  ip -n "$name-$1" link set eth0 up gso_max_segs $segments
  ip -n "$2" link set "port$1" master bridge up
  ip netns exec "$name-$1" sh -c "
    set -e
    echo reno >/proc/sys/net/ipv4/tcp_congestion_control
    echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle
    echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save
    echo 4096 16384 $4 >/proc/sys/net/ipv4/tcp_wmem"
}

# switch NAME MTU
switch() {
  namespace "$1"
  ip -n "$1" link add bridge mtu "$2" type bridge stp_state 0 mcast_snooping 0
  ip -n "$1" link set bridge up
}

# bucket NAMESPACE INTERFACE MBITS BURST: one token bucket for all that leaves there
bucket() {
  [ "$3" = 0 ] ||
    tc -n "$1" qdisc add dev "$2" root tbf rate "$3mbit" burst "$4" limit 16mb
}

# queues NAMESPACE INTERFACE MBITS MTU src|dst HOST...: a queue for what comes from (goes to) each
# of these hosts, served in turn, and one for acknowledgements (IP packets below 256 bytes), which
# go first
queues() {
  on=$1 interface=$2 mbits=$3 packet=$((segments * ($4 + 14))) end=$5
  shift 5
  [ "$mbits" != 0 ] || return 0
  tc -n "$on" qdisc add dev "$interface" root handle 1: htb default 10
  tc -n "$on" class add dev "$interface" parent 1: classid 1:1 \
    htb rate "${mbits}mbit" burst $((2 * packet)) cburst $((2 * packet)) quantum $packet
  leaf 10 $((mbits * 1000 / 20)) 0
  tc -n "$on" filter add dev "$interface" parent 1: protocol ip prio 1 \
    u32 match u16 0x0000 0xff00 at 2 flowid 1:10
  class=11
  for peer in "$@"; do
    leaf $class $((mbits * 950 / $#)) 1
    tc -n "$on" filter add dev "$interface" parent 1: protocol ip prio 2 \
      u32 match ip "$end" "10.77.0.$((peer + 1))" flowid "1:$class"
    class=$((class + 1))
  done
}

# leaf CLASS KBITS PRIORITY: a queue that is sure of KBITS and may have what others leave
leaf() {
  tc -n "$on" class add dev "$interface" parent 1:1 classid "1:$1" htb rate "$2kbit" \
    ceil "${mbits}mbit" burst $packet cburst $packet quantum $packet prio "$3"
  tc -n "$on" qdisc add dev "$interface" parent "1:$1" pfifo limit 10000
}

others() {
  for peer in $(seq 0 $(($2 - 1))); do [ "$peer" = "$1" ] || echo "$peer"; done
}

star() {
  segments=1
  switch "$name-switch" 9000
  # shellcheck disable=SC2086
  hosts=$(set -- $rates && echo $#)
  i=0
  for rate in $rates; do
    host $i "$name-switch" 9000 262144
    if [ "$sharing" = fair ]; then
      # shellcheck disable=SC2046
      queues "$name-$i" eth0 "$rate" 9000 dst $(others $i "$hosts")
      # shellcheck disable=SC2046
      queues "$name-switch" "port$i" "$rate" 9000 src $(others $i "$hosts")
    else
      bucket "$name-$i" eth0 "$rate" 10kb
      bucket "$name-switch" "port$i" "$rate" 10kb
    fi
    i=$((i + 1))
  done
}

trunk() {
  segments=8
  switch "$name-a" 1500
  switch "$name-b" 1500
  ip link add trunk netns "$name-a" mtu 1500 type veth peer name trunk netns "$name-b"
  for side in a b; do ip -n "$name-$side" link set trunk master bridge up; done
  for i in 0 3; do host $i "$name-a" 1500 1048576; done
  for i in 1 2; do host $i "$name-b" 1500 1048576; done
  if [ "$sharing" = fair ]; then
    queues "$name-a" trunk "$rates" 1500 src 0 3
    queues "$name-b" trunk "$rates" 1500 src 1 2
  else
    bucket "$name-a" trunk "$rates" 3kb
    bucket "$name-b" trunk "$rates" 3kb
  fi
}

# A link carries nothing until both of its ends are seen to be up, which the kernel does in its own
# time.
await_links() {
  tries=200
  for namespace in $made; do
    while ip -n "$namespace" -o link show | grep -v ' lo: ' | grep -q 'state [A-Z]*DOWN'; do
      tries=$((tries - 1))
      if [ $tries = 0 ]; then
        echo "the links of $namespace did not come up within 10 s" >&2
        return 1
      fi
      sleep 0.05
    done
  done
}

probe() {
  [ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
  for tool in ip tc; do
    command -v $tool >/dev/null || { echo "needs iproute2 ('$tool' was not found)"; exit 77; }
  done
  if ! why=$(sh "$0" "penstock-probe-$$" trunk 100 fair -- \
             sh "$0" "penstock-probe2-$$" star 100 -- true 2>&1); then
    echo "namespaces with shaped links cannot be made here: $(echo "$why" | tail -n 1)"
    exit 77
  fi
}

[ $# -ge 1 ] || usage
[ "$1" != probe ] || { probe; exit 0; }
[ $# -ge 5 ] || usage
name=$1 kind=$2 made='' rates='' sharing=fair making=yes
shift 2
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    fair | fifo) sharing=$1 ;;
    *[!0-9]* | '') usage ;;
    *) rates="$rates${rates:+ }$1" ;;
  esac
  shift
done
if [ $# -lt 2 ] || [ -z "$rates" ]; then usage; fi
shift
trap cleanup EXIT
trap 'making=; exit 130' INT
trap 'making=; exit 143' TERM
trap 'making=; exit 129' HUP
case $kind in
  star) star ;;
  trunk) trunk ;;
  *) making=; usage ;;
esac
await_links
making=
"$@" &
command=$!
trap 'kill -TERM $command 2>/dev/null; wait $command; exit 143' INT TERM HUP
status=0
wait $command || status=$?
exit $status
