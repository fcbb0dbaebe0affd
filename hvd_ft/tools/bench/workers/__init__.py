"""The workers that `hvdft bench` measures; they import TensorFlow and Horovod."""
