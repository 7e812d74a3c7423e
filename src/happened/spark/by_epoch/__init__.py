"""Computations too large for a task, cut into epochs by consistent cuts; all of them in each phase together.

job               from what the pass over the rows found to their part of every table: the order of all below
  matching        the edges of happened-before and the fates of messages, from the rows of splits
epoch_layout      what each epoch's task needs, as arrays in files
  edge_files      the edges as tasks read them, how far clocks disagree, and the traffic between processes
  consistent_cuts where one epoch ends and the next begins
stamping          exact vectors of every epoch, in two passes, and what questions ask of epochs, stamped or
                  one after the other
steps             what else a question needs, registered by its name
  named_violations, paths_and_cycles
"""
