"""Getting into a process that is already training: the visitor's side, which never imports torch."""
