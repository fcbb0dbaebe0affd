// The seed's own loop, as in baidu-allreduce, for any MPI: MPI_Irecv, MPI_Send, MPI_Wait with whole
// chunks. Arguments: elements, repeats. Rank 0 prints the seconds of each repeat.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void allreduce(float* data, int count, int rank, int size) {
  std::vector<float> buffer(static_cast<size_t>(count / size + 1));
  auto begin = [&](int chunk) { return static_cast<int>(1LL * count * chunk / size); };
  int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int step = 0; step < 2 * (size - 1); ++step) {
    bool adds = step < size - 1;
    int sent = (rank - step + 2 * size) % size;
    if (!adds) sent = (rank + 1 - (step - size + 1) + 2 * size) % size;
    int received = (sent + size - 1) % size;
    int length = begin(received + 1) - begin(received);
    float* own = data + begin(received);
    MPI_Request request;
    MPI_Irecv(adds ? buffer.data() : own, length, MPI_FLOAT, from, 0, MPI_COMM_WORLD, &request);
    MPI_Send(data + begin(sent), begin(sent + 1) - begin(sent), MPI_FLOAT, to, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; adds && i < length; ++i) own[i] += buffer[static_cast<size_t>(i)];
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  int rank, size, count = std::atoi(argv[1]), repeats = std::atoi(argv[2]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<float> data(static_cast<size_t>(count));
  float wanted = static_cast<float>(size * (size + 1) / 2);
  for (int repeat = -1; repeat < repeats; ++repeat) {
    // The first one makes the connections.
    int length = repeat < 0 ? std::min(count, 1 << 16) : count;
    std::fill(data.begin(), data.end(), static_cast<float>(rank + 1));
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    allreduce(data.data(), length, rank, size);
    double seconds = MPI_Wtime() - begin, longest;
    MPI_Reduce(&seconds, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    bool right =
        std::all_of(data.begin(), data.begin() + length, [&](float x) { return x == wanted; });
    if (!right) MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == 0 && repeat >= 0) std::printf("SECONDS %.6f\n", longest);
  }
  MPI_Finalize();
}
