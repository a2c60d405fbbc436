# close NETWORK NUMBERS FILE: the numbers are those of the network's line of the file, to rounding.
close() {
  awk -v network="$1" -v given="$2" '
    $1 == network {
      n = split(given, y, " ")
      if (n != NF - 1) wrong = network ": " n " numbers, expected " NF - 1
      for (i = 1; i <= n; ++i) {
        error = y[i] - $(i + 1)
        if (!(error < 3e-6 && error > -3e-6)) wrong = network ": " y[i] ", expected " $(i + 1)
      }
      found = 1
    }
    END {
      if (!found) wrong = network ": not in the file"
      if (wrong) print wrong
      exit wrong != ""
    }' "$3"
}
