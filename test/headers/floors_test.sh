#!/usr/bin/env bash
# floors_test.sh HEADER...: includes go down the layers, never up nor across, no layer names details of the kernels, and
# the umbrella header leads to nothing that a program without replicas and data files would read in vain.
set -euo pipefail

awk '
  BEGIN {
    split("core 0 cpu 1 module 2 nn 3 model 3 compose 3 ops 3 optim 4 replicate 4 io 4 train 5 deploy 5", words)
    for (i = 1; i in words; i += 2) floor[words[i]] = words[i + 1]
    split("plan 0 passes 1 network 2 hooks 3 state 3 engine 4 lazy 5 calls 5", words)
    for (i = 1; i in words; i += 2) floor_of_model[words[i]] = words[i + 1]
  }
  function room(path) { return match(path, /ikebana\/[a-z_0-9]+\//) ? substr(path, RSTART + 8, RLENGTH - 9) : "" }
  # The folders of model/ have floors of their own; what stands in model/ itself is for users.
  function room_of_model(path) {
    return match(path, /ikebana\/model\/[a-z_0-9]+\//) ? substr(path, RSTART + 14, RLENGTH - 15) : ""
  }
  FNR == 1 {
    files++
    inner = room_of_model(FILENAME)
    if (inner != "" && !(inner in floor_of_model)) fail(FILENAME ": no floor is known for model/" inner)
    here = room(FILENAME)
    if (here != "" && !(here in floor)) fail(FILENAME ": no floor is known for " here)
  }
  function fail(sentence) { print sentence; failed = 1 }
  /cpu::detail/ && here != "cpu" && FILENAME ~ /\.hpp$/ { fail(FILENAME ":" FNR ": names cpu::detail: " $0) }
  /^[ \t]*#[ \t]*include[ \t]*[<"]ikebana\// {
    split($0, quoted, /["<>]/)
    edges[FILENAME] = edges[FILENAME] " include/" quoted[2]
    lower = room_of_model($0)
    if (inner != "" && lower != "" && lower != inner && floor_of_model[lower] >= floor_of_model[inner])
      fail(FILENAME ":" FNR ": model/" inner " includes model/" lower ": " $0)
    there = room($0)
    if (here == "" || there == here) next
    if (there == "") fail(FILENAME ":" FNR ": a room includes the umbrella: " $0)
    else if (floor[there] >= floor[here]) fail(FILENAME ":" FNR ": " here " includes " there ": " $0)
  }
  # visit: whatever a header includes, directly or not.
  function visit(header,  i, n, list) {
    if (header in visited) return
    visited[header] = 1
    n = split(edges[header], list, " ")
    for (i = 1; i <= n; ++i) visit(list[i])
  }
  END {
    visit("include/ikebana/ikebana.hpp")
    for (header in visited)
      if (header ~ /\/replicate[\/.]|\/io\/(csv|idx|file)|\/io\.hpp/) fail("the umbrella leads to " header)
    if (!("include/ikebana/model/model.hpp" in visited)) fail("the umbrella leads to no model")
    if (!files) fail("no header was looked at")
    if (!failed) print files " headers keep to the floors"
    exit failed
  }
' "$@"
