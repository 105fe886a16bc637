#!/usr/bin/env bash
# A session of etcdctl, its output made comparable: ids, terms, ports and times are blanked.
#
#   diff <(etcdctl-session.sh ETCDCTL http://a-fresh-etcd) <(etcdctl-session.sh ETCDCTL http://a-fresh-sluice)
#
# What may differ: the hash (each store hashes its own way), the member's name and peer URL, and
# what is refused on purpose: adding users, enabling auth, validating a downgrade.
set -u
E=$1
export ETCDCTL_ENDPOINTS=$2
work=$(mktemp -d) && cd "$work" || exit 2
trap 'rm -rf "$work"' EXIT
r() { echo "\$ ${*/#"$E"/etcdctl}"; timeout 20 "$@" 2>&1; echo "rc=$?"; }
blank() {
    sed -E -e 's/"level":"warn".*"method":"([^"]*)".*"error":"([^"]*)"\}.*/WARN \1 \2/' \
        -e 's/127\.0\.0\.1:[0-9]+/ADDR/g' -e 's/"(cluster_id|member_id|raft_term|lease)":[0-9]+/\1/g' \
        -e 's/(lease|--lease) [0-9a-f]{16}/\1 ID/g' -e 's/"(ClusterID|MemberID|RaftTerm|ID)" : [0-9]+/\1/' \
        -e 's/took = .*|took [0-9.]+ms/TIME/' -e 's/^[0-9a-f]{16}, started/ID, started/'
}
{
r $E get nothing -w json
r $E put a 1
r $E put a 2 --prev-kv
r $E put b 1
r $E put c 3
r $E put d/1 x
r $E put d/2 y
r $E get a
r $E get a -w json
r $E get a --rev 2
r $E get a --rev 1
r $E get a --rev 100
r $E get --prefix d/
r $E get --prefix "" --keys-only
r $E get --prefix "" --count-only -w fields
r $E get --from-key b --limit 2
r $E get a d --limit 2 -w json
r $E get --prefix "" --order DESCEND --sort-by VERSION
r $E get --prefix "" --order ASCEND --sort-by MODIFY --limit 2
r $E get --prefix "" --order DESCEND --sort-by CREATE --limit 2
r $E get --prefix "" --sort-by VALUE
r $E get --prefix "" --min-create-rev 4 --max-create-rev 5
r $E get --prefix "" --min-mod-rev 4 --max-mod-rev 5 --count-only -w json
r $E get a --consistency s
r $E get --stream --prefix "" 
r $E put a --ignore-value --lease 7
r $E put zz --ignore-value
r $E put a v --ignore-lease
r $E put "" v
r $E del b --prev-kv
r $E del b
r $E del --prefix d/ --prev-kv
r $E del --from-key c -w json
printf 'mod("a") > "0"\n\nput t 1\nget a\n\nget c\n\n' > txn1
printf 'value("a") = "nope"\nversion("a") < "9"\n\nput t 2\n\nget a\nget c\ndel t\n\n' > txn2
printf 'create("zz") = "0"\n\nput zz 1\nput zz 2\n\n\n' > txn3
r $E txn < txn1
r $E txn -w json < txn1
r $E txn < txn2
r $E txn < txn3
r $E lease grant 60 -w fields | grep -v '"ID"\|^"MemberID\|"ClusterID\|RaftTerm'
L=$($E lease grant 100 | awk '{print $2}')
r $E put l1 v --lease $L
r $E put l2 v --lease $L
r $E lease timetolive $L --keys | sed "s/$L/LEASE/"
r $E lease keep-alive --once $L | sed "s/$L/LEASE/"
r $E lease list | sed "s/$L/LEASE/" | tail -n +1 | wc -l
r $E get --prefix l
r $E lease revoke $L | sed "s/$L/LEASE/"
r $E lease revoke $L | sed "s/$L/LEASE/g"
r $E lease timetolive $L | sed "s/$L/LEASE/"
r $E lease timetolive 1234
r $E lease keep-alive --once 1234
r $E get --prefix l
r $E lease grant 0
r $E lease grant 9000000001
r $E get a -w json
r $E compaction 5
r $E compaction 5
r $E compaction 500
r $E compaction 6 --physical
r $E get a --rev 5
r $E get a --rev 6
r $E get a --rev 7
(timeout 3 $E watch --prefix "" --rev 7 --prev-kv; echo rc=$?) 2>&1
(timeout 3 $E watch --prefix "" --rev 3; echo rc=$?) 2>&1 | sed 's/"ts":"[^"]*"/ts/'
(timeout 3 $E watch --prefix "" --rev 6 --prev-kv -w json; echo rc=$?) 2>&1 
printf 'watch w\nprogress\n' > wi
(sleep 0.3; $E put w 1 >/dev/null; $E put w 2 > /dev/null; $E del w >/dev/null) & 
(timeout 3 $E watch w --prev-kv --progress-notify; echo rc=$?) 2>&1
wait
(timeout 2 $E watch -i < wi; echo rc=$?) 2>&1
r $E alarm list
r $E alarm disarm
r $E defrag
r $E endpoint health | sed 's/took = .*//;s/127.0.0.1:[0-9]*/ADDR/'
r $E endpoint hashkv | sed 's/, [0-9]*$/, HASH/;s/127.0.0.1:[0-9]*/ADDR/'
r $E member list | sed 's/127.0.0.1:[0-9]*/ADDR/g'
r $E auth status
r $E user list
r $E role list
r $E user add u:p
r $E auth enable
(timeout 5 $E lock mylock echo locked; echo rc=$?) 2>&1
(timeout 3 $E elect myelect me; echo rc=$?) 2>&1 | sed 's,myelect/.*,myelect/ID,'
r $E move-leader 1
r $E member remove 1
r $E member promote 1
r $E downgrade validate 3.6.0
} | blank
