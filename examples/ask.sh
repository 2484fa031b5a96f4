#!/bin/sh
# Ask gad something, and print the answer:  ask.sh SESSION TEXT...
#
# A new SESSION is begun; one that is there is gone on with. Exits with 0 when it is done, 3 when it asks something
# (print the question; run this again with the answer), 4 stopped, 5 failed, 6 not accepted.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 SESSION TEXT..." >&2; exit 2; }
place=${GAD_HOME:-$HOME/agents}/spool/$1
shift

status() { cat "$place/status.txt" 2>/dev/null || :; }
value() { printf '%s\n' "$now" | sed -n "s/^$1: //p"; }

if mkdir "$place" 2>/dev/null; then file=input.txt; else file=reply.txt; fi
before=$(status)
now=$before
# A round that has ended stays so until its successor ends: then the number has grown. A question belongs to its round.
case $(value state) in done | failed | stopped) round=$(value round) ;; *) round=-1 ;; esac

# Write aside and rename: the text is there whole or not at all. -n never overwrites a reply that was not taken yet.
printf '%s\n' "$*" > "$place/.$file.$$"
mv -n "$place/.$file.$$" "$place/$file"
if [ -e "$place/.$file.$$" ]; then
    rm "$place/.$file.$$"
    echo "$place/$file is there already: does the daemon run?" >&2
    exit 111
fi

while :; do
    now=$(status)
    case $(value state) in
    done | failed | stopped) [ "$(value round)" -gt "$round" ] && break ;;
    asking) [ "$now" != "$before" ] && break ;;
    rejected) [ "$now" != "$before" ] && break ;;
    esac
    sleep 0.2
done

case $(value state) in
done) cat "$place/result.txt" ;;
asking) value question && exit 3 ;;
stopped) echo stopped >&2 && exit 4 ;;
failed) value error >&2 && exit 5 ;;
rejected) value error >&2 && exit 6 ;;
esac
