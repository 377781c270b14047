"""What each verb of the command line does: flags in, an answer out."""
