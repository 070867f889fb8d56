(
  until [ -s /etc/podinfo/evict-at ]; do sleep 2; done
  left=$(( $(date -d "$(cat /etc/podinfo/evict-at)" +%s) - $(date +%s) ))
  ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message Fairgate \
    --deadline-remaining-seconds $(( left > 0 ? left : 0 ))
) &
exec ray start --block --address "$FAIRGATE_HEAD"
