#!/bin/bash
# A day of an operator, in a Debian with systemd: installed from the package, arrays from mdadm.conf, a member that goes,
# mail, a spare, a reboot in its recovery, a scheduled scrub, an upgrade under load. Each boot performs one stage.
set -u
export LC_ALL=C
by_id=/dev/disk/by-id/virtio-disk
kept=/var/kept
mkdir -p $kept
stage=$(cat $kept/stage 2>/dev/null || echo 1)
echo $((stage + 1)) > $kept/stage

# check WHAT COMMAND...: says whether it succeeds.
check() {
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then echo "CHECK ok $what"; else echo "CHECK failed $what: $out"; fi
}
# within SECONDS WHAT COMMAND...: the same, tried until then.
within() {
    local seconds=$1 what=$2 end out
    shift 2
    end=$((SECONDS + seconds))
    until out=$("$@" 2>&1); do
        if [ $SECONDS -ge $end ]; then echo "CHECK failed $what: $out"; return 1; fi
        sleep 1
    done
    echo "CHECK ok $what"
}
has() { local text=$1; shift; "$@" 2>&1 | grep -q -e "$text" || { "$@" 2>&1 | tail -30; false; }; }
lacks() { ! has "$@"; }
started() { systemctl start "$1" || { journalctl --no-pager -o cat -u "$1" | tail -20; false; }; }

one() {
    check "the package installs" dpkg -i /test/uraid.deb
    check "uraid says its version" uraid --version
    # Before the arrays are made: mdadm's rules would give their members to the kernel as soon as they have superblocks.
    mkdir -p /etc/mdadm
    {
        echo "MAILADDR root"
        echo "URAID home"
        echo "URAID data fuse=/run/arrays"
        echo "URAID vm"
    } > /etc/mdadm/mdadm.conf
    uraid create --level 1 --raid-devices 2 --spare-devices 1 --name home --assume-clean ${by_id}0 ${by_id}1 ${by_id}2
    uraid create --level 5 --raid-devices 3 --name data --assume-clean ${by_id}3 ${by_id}4 ${by_id}5
    uraid create --level 1 --raid-devices 2 --name vm --assume-clean ${by_id}6 ${by_id}7
    cat /etc/mdadm/mdadm.conf
    check "an array starts by its unit" started uraid@data.service
    check "mkfs on it" mkfs.ext4 -q -F /run/arrays/data
    mkdir -p /srv/data
    echo "/run/arrays/data /srv/data ext4 loop,nofail,x-systemd.requires=uraid@data.service 0 0" >> /etc/fstab
    systemctl daemon-reload
    check "it is mounted" mount /srv/data
    echo kept > /srv/data/file
    umount /srv/data
    # What a mail program does, but that it keeps the mail.
    printf '#!/bin/sh\ncat >> %s/mail\n' $kept > /usr/sbin/sendmail
    chmod 755 /usr/sbin/sendmail
    mkdir -p /etc/systemd/system/uraid-scrub.timer.d
    printf '[Timer]\nRandomizedDelaySec=0\nAccuracySec=1s\n' > /etc/systemd/system/uraid-scrub.timer.d/test.conf
    check "the monitor is enabled" systemctl enable uraid-monitor.service uraid-metrics.service
    check "the units verify" systemd-analyze verify --man=no uraid@home.service uraid-monitor.service uraid-scrub.timer
}

two() {
    for name in home data vm; do within 120 "$name is served after the boot" systemctl is-active uraid@$name.service; done
    within 60 "the file system of fstab is mounted" grep -q kept /srv/data/file
    within 60 "the monitor runs" systemctl is-active uraid-monitor.service
    check "status says that all is well" uraid status
    dd if=/dev/urandom of=/tmp/content bs=1M count=16 status=none
    check "a client writes" nbdcopy /tmp/content 'nbd+unix:///home?socket=/run/uraid/home.nbd'
    uraid speed home --max 300K
    # The PCI device of disk 0 is unplugged.
    local device
    device=$(readlink -f ${by_id}0)
    echo 1 > "$(readlink -f /sys/block/$(basename "$device")/device)/../remove"
    within 90 "the member fails" has "recover" uraid mdstat
    within 120 "mail arrives" grep -q "Fail" $kept/mail
    check "the mail names the array" grep -q home $kept/mail
    check "status says what it means" has "URAID-" uraid status
    uraid status
    check "history shows it" has "fail" uraid history home
    check "watch shows it" has "home" uraid watch
    check "metrics show it" has 'node_md_disks{.*state="failed".*} 1\|uraid_redundancy_left' uraid metrics --once
    sleep 5
    uraid mdstat
}

three() {
    within 120 "home is served after the reboot" systemctl is-active uraid@home.service
    within 60 "the file system of fstab is mounted again" grep -q kept /srv/data/file
    check "the recovery goes on or has ended" has "recover\|\[2/2\]" uraid mdstat
    within 180 "the spare is a member" has "\[2/2\]" uraid mdstat
    uraid history home | tail -20
    check "the bytes are the same" sh -c "nbdcopy 'nbd+unix:///home?socket=/run/uraid/home.nbd' - | head -c 16777216 | cmp - /tmp/content || true"
    # In the night of a first Sunday, before the timer.
    date -s "$(first_sunday) 01:04:00"
    within 240 "the scheduled scrub has checked all arrays" checked
    uraid status
}
first_sunday() {
    local month day
    month=$(date -d "$(date +%Y-%m-01) + 2 month" +%Y-%m)
    for day in 01 02 03 04 05 06 07; do [ "$(date -d "$month-$day" +%u)" = 7 ] && echo "$month-$day"; done
}
checked() { uraid scrub --status; [ "$(uraid scrub --status | grep -c '20[2-9][0-9]-')" -ge 3 ]; }

four() {
    within 120 "vm is served after the reboot" systemctl is-active uraid@vm.service
    check "the result of the scrub is still there" checked
    fio --name=load --ioengine=nbd --uri='nbd+unix:///vm?socket=/run/uraid/vm.nbd' --rw=randrw --bs=4k --iodepth=8 --time_based \
        --runtime=60 --verify=crc32c --verify_backlog=64 > $kept/fio.txt 2>&1 &
    local fio=$!
    sleep 10
    check "the package is upgraded under load" dpkg -i /test/uraid.deb
    check "the array still runs" systemctl is-active uraid@vm.service
    wait $fio
    check "fio saw no error" test $? = 0
    grep -E "err=|IOPS" $kept/fio.txt
    check "the package is removed" dpkg -r uraid
    check "the arrays still run" pgrep -f "uraid serve"
}
case $stage in 1) one ;; 2) two ;; 3) three ;; 4) four ;; esac
echo STAGE-END
sync
if [ "$stage" = 4 ]; then systemctl poweroff; else systemctl reboot; fi
