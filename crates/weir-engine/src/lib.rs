//! The live data plane: receive, dissect, classify, tree, send; timers, swap, statistics.
