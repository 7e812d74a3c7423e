"""One computation too large for a task, cut into epochs by consistent cuts.

job             from its events to its part of every table: the order of everything below
epoch_layout    what each epoch's task needs, as arrays in files
  edges           the edges of happened-before by a shuffle join
  matching        the same edges where the events lie, for traces written as they happened
  edge_skew       how far clocks disagree, from the edges
  consistent_cuts where one epoch ends and the next begins
stamping        exact vectors of every epoch, in two passes, and what questions ask of stamped epochs
walks           what questions ask of the epochs one after the other
steps           what only Spark can answer for a question, registered by the question's name
  named_violations, total_at_scale, clock_faults, causal_paths, message_rows
"""
