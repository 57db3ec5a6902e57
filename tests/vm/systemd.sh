#!/bin/bash
# A day of an operator, in a Debian with systemd: installed from the package, arrays from mdadm.conf, a member that goes,
# mail, a spare, a reboot in its recovery, a scheduled scrub, an upgrade under load. Each boot performs one stage.
# What a later stage needs lies in $kept. Time limits are for machines that hang: a slow one is waited for.
set -u
export LC_ALL=C
by_id=/dev/disk/by-id/virtio-disk
kept=/var/kept
mkdir -p $kept
stage=$(cat /test/stage)
limit=900
home='nbd+unix:///home?socket=/run/uraid/home.nbd'
vm='nbd+unix:///vm?socket=/run/uraid/vm.nbd'

# check WHAT COMMAND...: says whether it succeeds.
check() {
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then echo "CHECK ok $what"; else echo "CHECK failed $what: $out"; fi
}
# within WHAT COMMAND...: the same, tried until it does.
within() {
    local what=$1 end out
    shift
    end=$((SECONDS + limit))
    until out=$("$@" 2>&1); do
        if [ $SECONDS -ge $end ]; then echo "CHECK failed $what: $out"; return 1; fi
        sleep 1
    done
    echo "CHECK ok $what"
}
# has PATTERN COMMAND...: whether it is in what the command prints, which is shown if not.
has() {
    local text=$1 out
    shift
    out=$("$@" 2>&1)
    grep -q -e "$text" <<< "$out" || { tail -30 <<< "$out"; false; }
}
lacks() { ! has "$@" > /dev/null; }
started() { systemctl start "$1" || { journalctl --no-pager -o cat -u "$1" | tail -20; false; }; }
served() { systemctl is-active uraid@$1.service || { journalctl --no-pager -o cat -u uraid@$1 | tail; cat /proc/mdstat; false; }; }
# The bytes that a client reads are those that one has written.
same() {
    nbdcopy "$1" /tmp/all && cmp -n "$(stat -c %s $2)" $2 /tmp/all
    local result=$?
    rm -f /tmp/all
    return $result
}
# What Prometheus would read.
scrape() {
    exec 3<> /dev/tcp/127.0.0.1/9634 || return 1
    printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    cat <&3
    exec 3>&-
}
# How many KiB the recovery of home has behind it.
recovered() { uraid mdstat | sed -n 's/.*recovery *=.*(\([0-9]*\)\/.*/\1/p'; }
mails() { [ "$(grep -c "^Subject: $1 event" $kept/mail)" = "$2" ] || { cat $kept/mail; false; }; }
pid() { systemctl show -P MainPID "$1"; }

one() {
    check "the package installs" dpkg -i /test/uraid.deb
    check "uraid says its version" uraid --version
    check "the timer runs" systemctl is-active uraid-scrub.timer
    # Before the arrays are made: mdadm's rules would give their members to the kernel as soon as they have superblocks.
    mkdir -p /etc/mdadm
    {
        echo "MAILADDR root"
        echo "URAID home"
        echo "URAID data fuse=/run/arrays"
        echo "URAID vm"
    } > /etc/mdadm/mdadm.conf
    check "home is created" \
        uraid create --level 1 --raid-devices 2 --spare-devices 1 --name home --assume-clean ${by_id}0 ${by_id}1 ${by_id}2
    check "data is created" \
        uraid create --level 5 --raid-devices 3 --name data --assume-clean ${by_id}3 ${by_id}4 ${by_id}5
    check "vm is created" uraid create --level 1 --raid-devices 2 --name vm --assume-clean ${by_id}6 ${by_id}7
    check "an array starts by its unit" started uraid@data.service
    check "mkfs on it" mkfs.ext4 -q -F /run/arrays/data
    mkdir -p /srv/data
    echo "/run/arrays/data /srv/data ext4 loop,nofail,x-systemd.requires=uraid@data.service 0 0" >> /etc/fstab
    systemctl daemon-reload
    check "it is mounted" mount /srv/data
    dd if=/dev/urandom of=/srv/data/file bs=1M count=8 status=none
    sha256sum /srv/data/file > $kept/sums
    umount /srv/data
    # What a mail program does, but that it keeps the mail.
    printf '#!/bin/sh\ncat >> %s/mail\n' $kept > /usr/sbin/sendmail
    chmod 755 /usr/sbin/sendmail
    mkdir -p /etc/systemd/system/uraid-scrub.timer.d
    printf '[Timer]\nRandomizedDelaySec=0\nAccuracySec=1s\n' > /etc/systemd/system/uraid-scrub.timer.d/test.conf
    check "the monitor and the metrics are enabled" systemctl enable uraid-monitor.service uraid-metrics.service
    # mdadm's part of the initial file system is to know that it leaves them alone.
    check "the initial file system is made anew" update-initramfs -u
    check "the units verify" systemd-analyze verify --man=no \
        uraid@home.service uraid-monitor.service uraid-metrics.service uraid-scrub.timer uraid.target
}

two() {
    for name in home data vm; do within "$name is served after the boot" served $name; done
    check "the kernel has none of them" lacks "active" cat /proc/mdstat
    within "the file system of fstab is mounted" sha256sum -c $kept/sums
    within "the monitor runs" systemctl is-active uraid-monitor.service
    within "metrics show a healthy array" has '^uraid_redundancy_left{.*array="home"} 1' scrape
    check "status says that all is well" uraid status
    dd if=/dev/urandom of=$kept/content bs=1M count=16 status=none
    check "a client writes" nbdcopy $kept/content "$home"
    # A quarter of an hour for all of it, so that the reboot comes in the middle.
    check "the speed is limited" uraid speed home --max 60
    # The PCI device of disk 0 is unplugged.
    local device
    device=$(basename "$(readlink -f ${by_id}0)")
    echo 1 > "$(readlink -f /sys/block/$device/device)/../remove"
    within "a spare is being recovered" has "recovery =" uraid mdstat
    uraid mdstat
    within "mail arrives" mails Fail 1
    check "the mail names the array" grep -q "^Subject: Fail event on /dev/md/home:" $kept/mail
    check "status says what it means" has "URAID-04 recovering" uraid status home
    uraid status home
    check "history has the failure" has "member-failed.*$device" uraid history home
    check "history has the spare" has "spare-taken" uraid history home
    check "watch shows the recovery" has "recovery" uraid watch
    check "metrics show that it is degraded" has '^node_md_degraded{device="md[0-9]*"} 1' scrape
    check "metrics show the recovery" has '^uraid_pass_active{.*array="home",kind="recovery"} 1' scrape
    check "metrics show that no redundancy is left" has '^uraid_redundancy_left{.*array="home"} 0' scrape
    within "the recovery is under way" has "recovery = *[1-9][0-9]*\.[0-9]%" uraid mdstat
    recovered | tee $kept/recovered
}

three() {
    within "home is served after the reboot" served home
    journalctl --no-pager -b -o cat -u uraid@home | head -30
    within "the file system of fstab is mounted again" sha256sum -c $kept/sums
    within "the recovery goes on where it was" continued
    within "the spare is a member" has "Slots : \[2/2\] \[UU\]" uraid detail home
    uraid history home | tail -20
    check "the bytes are the same" same "$home" $kept/content
    check "the failure was mailed once" mails Fail 1
    check "no array was ever checked" lacks "20[2-9][0-9]-" uraid scrub --status
    # In the night of a first Sunday, before the timer.
    date -s "$(first_sunday) 01:04:00"
    within "the scheduled scrub has checked all arrays" checked
    within "its service has ended well" has "^Result=success" systemctl show -p Result,ExecMainStatus uraid-scrub.service
    uraid scrub --status --json > $kept/scrub
    uraid scrub --status
    uraid status
}
# The place that the superblock of the spare had is at least that before the reboot.
continued() {
    local sectors
    sectors=$(journalctl --no-pager -b -o cat -u uraid@home |
        sed -n 's/.* holds \([0-9]*\) of [0-9]* sectors: its recovery continues.*/\1/p')
    echo "before the reboot $(cat $kept/recovered) KiB, after it $sectors sectors"
    [ -n "$sectors" ] && [ "$sectors" -gt 0 ] && [ $((sectors / 2)) -ge "$(cat $kept/recovered)" ]
}
first_sunday() {
    local month day
    month=$(date -d "$(date +%Y-%m-01) + 2 month" +%Y-%m)
    for day in 01 02 03 04 05 06 07; do [ "$(date -d "$month-$day" +%u)" = 7 ] && echo "$month-$day"; done
}
checked() { uraid scrub --status; [ "$(uraid scrub --status | grep -c '20[2-9][0-9]-')" -ge 3 ]; }

four() {
    within "vm is served after the reboot" served vm
    within "home is served" served home
    within "the monitor runs" systemctl is-active uraid-monitor.service
    check "the result of the scrub is still there" cmp $kept/scrub <(uraid scrub --status --json)
    # The same with a higher version.
    dpkg-deb -R /test/uraid.deb /tmp/newer
    sed -i 's/^Version: .*/&+newer/' /tmp/newer/DEBIAN/control
    check "a newer package is made" dpkg-deb -Znone -b /tmp/newer /tmp/newer.deb
    local server monitor fio status
    server=$(pid uraid@vm)
    monitor=$(pid uraid-monitor)
    # It is ended when the upgrade is through, however long this takes.
    fio --name=load --ioengine=nbd --uri="$vm" --rw=randrw --bs=4k --iodepth=8 --size=32M --time_based --runtime=24h \
        --verify=crc32c --verify_backlog=64 --verify_fatal=1 --output=$kept/fio.txt &
    fio=$!
    within "fio is connected" has "NBD Connections : [1-9]" uraid detail vm
    sleep 10
    check "the package is upgraded under load" dpkg -i /tmp/newer.deb
    check "it is the newer one" has "+newer" dpkg-query -W -f '${Version} ${Status}' uraid
    check "fio is still running" kill -0 $fio
    check "the array is served by the same process" test "$(pid uraid@vm)" = "$server"
    check "it has the program of before" has "/usr/bin/uraid (deleted)" readlink /proc/$server/exe
    check "the monitor was restarted" test "$(pid uraid-monitor)" != "$monitor"
    check "and runs" systemctl is-active uraid-monitor.service
    check "the new program asks the old server" has "vm" uraid detail vm
    kill -INT $fio
    wait $fio
    status=$?
    check "fio ended because it was told to" test $status = 128
    check "fio saw no error" has "err= 0" cat $kept/fio.txt
    grep -E "err=|IOPS" $kept/fio.txt
    check "a client writes" nbdcopy $kept/content "$vm"
    check "the array is restarted" systemctl restart uraid@vm.service
    check "with the new program" has "^/usr/bin/uraid$" readlink /proc/$(pid uraid@vm)/exe
    check "the bytes are the same" same "$vm" $kept/content
    server=$(pid uraid@vm)
    check "the removal says which arrays are served" has "stay served.*uraid@vm.service" dpkg -r uraid
    check "the program is gone" test ! -e /usr/bin/uraid
    check "the array is served by the same process" test "$(pid uraid@vm)" = "$server"
    check "a client still reads the same" same "$vm" $kept/content
    check "it is stopped" systemctl stop uraid@vm.service
    check "the members are clean for mdadm" has "State : clean" mdadm --examine ${by_id}6
    check "the package is purged" dpkg -P uraid
    check "and nothing of it stays" test ! -e /var/lib/uraid -a ! -e /etc/default/uraid
    check "the file system is still mounted" sha256sum -c $kept/sums
}
case $stage in 1) one ;; 2) two ;; 3) three ;; 4) four ;; esac
echo STAGE-END
sync
if [ "$stage" = 4 ]; then systemctl poweroff; else systemctl reboot; fi
