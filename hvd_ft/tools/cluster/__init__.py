"""A cluster on one machine: `hvdft cluster`. Nodes are sets of Linux namespaces.

Each node has an init process (`node.py`) with its own network, hostname, mounts, shared memory and
processes. Another process, the switch (`switch.py`), holds the bridge that connects the nodes, and
every node dies with it. Commands enter a node through its exec server (`exec_server.py`), a Unix
socket.
"""
