"""What hvd_ft needs around it, built and checked: environment, patched Horovod, patches."""
