# make help lists the targets.
# TENSORFLOW=2.21 and PYTHON=python3.12 choose another environment than the default's, .venv; there
# KERAS=2 chooses tf_keras.
PYTHON ?= python3
export TENSORFLOW
ifeq ($(KERAS),2)
export TF_USE_LEGACY_KERAS := 1
endif
VENV := $(shell TENSORFLOW=$(TENSORFLOW) $(PYTHON) scripts/setup_environment.py --folder)/bin
CSRC := hvd_ft/csrc
SOURCES := $(filter-out $(CSRC)/horovod/%,$(wildcard $(CSRC)/*/*.cc))

.DEFAULT_GOAL := help
.PHONY: help setup compat tested docs core horovod demo soak agentsoak soak-cluster network slurm optimizers clients mutants fuzz quick test promises part pairs full wheel release sim sim-large lint sanitize experiments figures bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

setup: ## .venv with the pinned packages, the core, the patched Horovod; TORCH=1: with PyTorch; TENSORFLOW=2.21, PYTHON=python3.12: an environment beside it; again: only what changed
	@TORCH=$(TORCH) $(PYTHON) scripts/setup_environment.py

demo: setup ## 4 ranks train, one is killed, training goes on
	@$(VENV)/python scripts/demo.py

soak: setup ## workers are killed at random for MINUTES=10; SEED= repeats the draw; TORCH=1: PyTorch's
	@$(VENV)/python scripts/soak.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(TORCH),--framework torch)

agentsoak: setup ## agents, mpirun and proxies are killed at random for MINUTES=10, on three nodes; SEED= repeats
	@$(VENV)/python scripts/soak_agents.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

soak-cluster: setup ## nodes, links and processes of a cluster with spare hosts fail at random for MINUTES=10; SEED= repeats; TORCH=1: PyTorch's jobs
	@$(VENV)/python scripts/soak_cluster.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(TORCH),--framework torch)

network: setup ## networks that fail, all of it: links cut, lossy, slow, reset, for seconds to minutes, on three nodes
	@$(VENV)/python -m pytest tests/jobs/test_network.py -m 'long or not long'

slurm: setup ## jobs under a real Slurm, all of it: both ways to track processes, deaths, preemption (needs slurm-wlm and munge)
	@$(VENV)/python -m pytest tests/jobs/test_slurm.py -m 'long or not long'

optimizers: setup ## every optimizer of Keras, made in every way, goes on after a kill (3 minutes)
	@$(VENV)/python -m pytest --numprocesses 2 tests/tensorflow/test_keras_optimizers.py -m 'long or not long'

CLIENTS := .cache/clients
clients: ## Lightning and Accelerate in a folder of their own, and all tests with them (needs network; 15 minutes)
	@$(MAKE) --no-print-directory setup TORCH=1
	@$(VENV)/python -m pip --disable-pip-version-check install -q --no-deps --upgrade --target $(CLIENTS) -r requirements-clients.txt
	@PYTHONPATH=$(CLIENTS) $(VENV)/python -m pytest -m 'long or not long' tests/pytorch tests/jobs tests/rules/test_examples.py -k 'lightning or accelerate'

mutants: setup ## the code is broken on purpose, in each way of scripts/mutants.toml; a test has to notice (ONLY=; MINUTES= for a part, another one for each commit)
	@$(VENV)/python scripts/mutants.py $(if $(ONLY),--only '$(ONLY)') $(if $(MINUTES),--minutes $(MINUTES))

fuzz: setup ## every reader of what strangers send or disks hold gets damaged input for MINUTES=10 in all (ONLY=)
	@$(VENV)/python scripts/fuzz.py --minutes $(or $(MINUTES),10) $(if $(ONLY),--only '$(ONLY)')

quick: setup ## the tests that need neither a job nor TensorFlow, the longest ones in small: a few minutes
	@$(VENV)/python -m pytest --numprocesses 2 --dist worksteal --quick

test: setup ## all tests without a job, and of those with one what shows a promise soon (ten minutes)
	@$(VENV)/python -m pytest --numprocesses 3 --dist worksteal --short

OF_FRAMEWORKS := tests/installed tests/tensorflow tests/rules/test_public_names.py $(addprefix tests/jobs/test_,$(addsuffix .py,recovery styles file_callbacks sampler_jobs checkpoints own_results))
compat: setup ## the tests of TensorFlow and Keras, in short (TENSORFLOW=2.21, PYTHON=python3.12, KERAS=2; 5 minutes)
	@$(VENV)/python -m pytest --numprocesses 2 --dist worksteal --short $(OF_FRAMEWORKS)

tested: compat ## the same; as all have passed, their combination is recorded as tested, here and in docs/reference
	@$(VENV)/python scripts/record_tested.py
	@$(VENV)/python scripts/make_reference.py

AGAIN = echo '$@: what has failed runs once more by itself; red again: $@ fails; PASSED below: unreliable, mend it in the next change'
PROMISES = $(VENV)/python -m pytest --promises $(if $(MINUTES),--minutes $(MINUTES))
promises: setup ## the tests with a job that show a promise and take longer (15 minutes; MINUTES= for a part, another one for each commit)
	@$(PROMISES) --numprocesses 2 --dist worksteal --cache-clear || { $(AGAIN); $(PROMISES) -rpfE --last-failed --last-failed-no-failures none; }

PART = $(VENV)/python -m pytest -m 'not install' --part $(or $(SLICE),commit) $(if $(MINUTES),--minutes $(MINUTES))
part: setup ## a slice of what test and promises leave out, another one for each commit (SLICE= repeats one; 8 minutes, or MINUTES=)
	@$(PART) --numprocesses 2 --dist worksteal --cache-clear || { $(AGAIN); $(PART) -rpfE --last-failed --last-failed-no-failures none; }

PAIRS = $(VENV)/python -m pytest tests/launcher/test_job_model.py tests/pairs -m 'long or not long' $(if $(ONLY),-k '$(ONLY)') $(if $(MINUTES),--minutes $(MINUTES))
pairs: setup ## each fault, and another one while the job recovers from it: in a simulated world (ONLY=model), and as real jobs on five nodes (ONLY='not model': some hours; ONLY='host-lost+agent-killed'); MINUTES= for a part, another one for each commit
	@$(PAIRS) --numprocesses 2 --dist worksteal --cache-clear || { $(AGAIN); $(PAIRS) -rpfE --last-failed --last-failed-no-failures none; }

full: setup ## all tests; what is skipped is listed with its reason (an hour)
	@$(VENV)/python -m pytest --numprocesses 3 --dist worksteal

wheel: setup ## hvd_ft installed into a fresh environment, checked there, and run on two nodes (a few minutes; TORCH=1: with PyTorch alone, too)
	@$(VENV)/python -m pytest -m 'install or not install' tests/tools/install/test_wheel.py$(if $(TORCH), tests/tools/install/test_torch_alone.py)

release: setup ## a release in dist/: sdist, wheel, licences, checksums signed by KEY=, each tried in fresh environments (15 minutes; ENVIRONMENTS=torch for one)
	@$(VENV)/python scripts/release.py $(if $(KEY),--key $(KEY)) $(if $(ENVIRONMENTS),--environments $(ENVIRONMENTS))

sim: ## the ring in the simulator for MINUTES=1 (SEED=), or one case of it: REPLAY='n=3 …'
	@mkdir -p out
	@$(CXX) -std=c++17 -O2 -I$(CSRC) -I$(CSRC)/include tests/core/simulator/ring_sim.cc $(CSRC)/base/reduce.cc -o out/ring_sim
	@out/ring_sim $(if $(REPLAY),--replay '$(REPLAY)',--minutes $(or $(MINUTES),1) $(SEED))

LARGE := 64,256,1024
sim-large: setup ## jobs of RANKS=64,256,1024, 8 on a node, in virtual time with deaths: what they cost, and how that grows (SEED=, REPLAY='ranks=64 …'); 6 GiB of memory, minutes
	@mkdir -p out
	@$(VENV)/cmake -S . -B build/sim-large -DHVDFT_TESTS=ON >out/sim-large.log
	@$(VENV)/cmake --build build/sim-large --target sim_large --parallel 2 >>out/sim-large.log || { cat out/sim-large.log; exit 1; }
	@build/sim-large/sim_large $(if $(REPLAY),--replay '$(REPLAY)',$(or $(RANKS),$(LARGE)) $(or $(SEED),1) out/sim-large.csv)

lint: setup ## ruff, mypy, clang-format, clang-tidy, and the core without a warning
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check hvd_ft tests scripts experiments setup.py
	@$(VENV)/mypy
	@git ls-files -z '*.h' '*.cc' | xargs -0 $(VENV)/clang-format --dry-run -Werror
	@echo $(SOURCES) | xargs -n 6 -P 2 $(VENV)/clang-tidy -p build/cmake --quiet
	@$(CXX) -std=c++17 -O2 -Wall -Wextra -Werror -pthread -fsyntax-only \
	  -I$(CSRC) -I$(CSRC)/include -isystem $(VENV)/../include $(SOURCES)

sanitize: setup ## the core's tests under the address, undefined behaviour and thread sanitizers
	@scripts/sanitize.sh

# Where results go: out/, or with COMMIT=1 into the folders of experiments/, to be committed.
WHERE := $(if $(COMMIT),--commit)
experiments: setup ## all experiments, hours; results and pictures into out/, with COMMIT=1 over the committed ones (some need root)
	@rm -f $(if $(COMMIT),experiments,out)/locality/results.csv
	@for part in links placements sizes node; do $(VENV)/python -m experiments.locality.run --part $$part $(WHERE) || exit; done
	@$(VENV)/python -m experiments.locality.predict $(WHERE)
	@$(VENV)/python -m experiments.locality.seed_loop $(WHERE)
	@$(VENV)/python -m experiments.scale.run --simulate $(LARGE) $(WHERE)
	@if [ $$(id -u) = 0 ]; then $(VENV)/python -m experiments.scale.run --kinds cluster --most 16 $(WHERE); fi
	@if $(VENV)/python -c 'import torch' 2>/dev/null; then $(VENV)/python -m experiments.torch_nodes.run $(WHERE); fi
	@$(VENV)/pip install -q intel-openmp  # for IMB-MT
	@$(VENV)/python -m experiments.endpoints_probe.run $(WHERE) $(if $(filter-out 0,$(shell id -u)),--places shm,loopback)
	@$(VENV)/python -m experiments.elastic
	@for run in recovery_time.run recovery_time.agent snapshot_cost.run state_memory.run time_to_converge.run lost_host.run \
	  checkpoint_cost.run buddy_cost.run times_cost.run keeping_tensors.run crashes.run more_nodes.run failures.run suspects.run endpoints.run; do \
	  $(VENV)/python -m experiments.$$run $(WHERE) || exit; done

# In short: about 12 minutes on 2 CPUs, the first time 3 more to build Elastic.
figures: setup ## the figures of the paper that this project started from, in short form, into out/ (needs root; 15 minutes)
	@$(VENV)/python -m experiments.elastic
	@$(VENV)/python -m experiments.keeping_tensors.run --repeats 3
	@$(VENV)/python -m experiments.crashes.run
	@$(VENV)/python -m experiments.more_nodes.run --repeats 1
	@$(VENV)/python -m experiments.time_to_converge.run --repeats 1 --failures 0.9
	@$(VENV)/python -m experiments.failures.run --repeats 1 --epochs 6 --every 0 25 --limit 150 --sides stock elastic-5s ft

bench: setup ## allreduce and training on ft against stock Horovod, tables and pictures into out/
	@mkdir -p out
	@$(VENV)/hvdft bench allreduce --csv out/one.csv --png out/one.png
	@$(VENV)/hvdft bench allreduce --tensors 64 --csv out/fused.csv --png out/fused.png
	@$(VENV)/hvdft bench allreduce --tensors 64 --no-fusion --csv out/unfused.csv --png out/unfused.png
	@$(VENV)/hvdft bench training --csv out/training.csv --png out/training.png

docs: ## the documentation as a site, in build/site; warnings are errors
	@$(VENV)/python scripts/build_docs.py

core: ## compile the core, and the ring over MPI
	@$(VENV)/python setup.py -q build_ext --inplace

horovod: ## build the patched Horovod and install it
	@$(VENV)/python -m hvd_ft.tools.install.horovod_build

clean: ## remove everything that was made
	rm -rf .venv .venv-* .cache build out *.egg-info hvd_ft/libhvd_ft.so hvd_ft/libhvdft_mpi.so hvd_ft/native/_abi.py
