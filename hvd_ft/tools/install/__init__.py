"""Builds and checks what hvd_ft depends on: environment, patched Horovod, patches."""
