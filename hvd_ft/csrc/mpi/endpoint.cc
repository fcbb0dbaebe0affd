#include "mpi/endpoint.h"

#include <dlfcn.h>
#include <mpi.h>

#include <cstring>
#include <type_traits>

namespace hvdft {

static_assert(std::is_same_v<MPI_Comm, int> && std::is_same_v<MPI_Request, int>,
              "handles are those of the MPICH ABI");

namespace {

// Tags number the messages of each direction of a link. When a connection breaks silently MPI makes
// another, and the messages under way are lost: a later message must not be taken for a lost one.
constexpr uint64_t kTags = 32768;  // the number of tags that every MPI has

int tag(const std::atomic<uint64_t>& count) {
  return static_cast<int>(count.load(std::memory_order_relaxed) % kTags);
}

void add_one(std::atomic<uint64_t>* count) { count->fetch_add(1, std::memory_order_relaxed); }

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  if (char* end = std::strpbrk(text, "\r\n")) *end = 0;
  throw RingError(std::string(what) + ": " + text +
                  "; give the same array size and the same calls on every member");
}

// A variable of MPI's tool interface; `otherwise` if this MPI has none of that name.
int variable(const char* name, int otherwise) {
  int index = 0, values = 0;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &values) == MPI_SUCCESS) {
    MPI_T_cvar_read(handle, &otherwise);
    MPI_T_cvar_handle_free(&handle);
  }
  return otherwise;
}

}  // namespace

Endpoint::Endpoint(int communicator, int thread_id) : thread_id_(thread_id) {
  MPI_Info info;
  check(MPI_Info_create(&info), "MPI_Info_create");
  MPI_Info_set(info, "thread_id", std::to_string(thread_id).c_str());
  int code = MPI_Comm_dup_with_info(communicator, info, &communicator_);
  MPI_Info_free(&info);
  check(code, "MPI_Comm_dup_with_info");
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &member_);
  MPI_Comm_size(communicator_, &members_);
  counts_ = std::vector<LinkCounts>(static_cast<size_t>(members_));
}

Endpoint::~Endpoint() {
  if (mpi_facts().running) MPI_Comm_free(&communicator_);
}

void Endpoint::count_sent(uint64_t bytes, int to) {
  add_one(&link(to).begun);
  add_one(&sent_messages_);
  sent_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

Transfer Endpoint::begin_send(const void* data, uint64_t bytes, int to) {
  Transfer transfer{MPI_REQUEST_NULL, bytes, kSent};
  check(MPI_Isend_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, to, tag(link(to).begun),
                    communicator_, &transfer.request),
        "MPI_Isend");
  count_sent(bytes, to);
  return transfer;
}

Transfer Endpoint::begin_receive(void* data, uint64_t bytes, int from) {
  Transfer transfer{MPI_REQUEST_NULL, bytes, from};
  check(MPI_Irecv_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, from, tag(link(from).posted),
                    communicator_, &transfer.request),
        "MPI_Irecv");
  add_one(&link(from).posted);
  return transfer;
}

bool Endpoint::complete(Transfer* transfer) {
  int done = 0;
  bool known = transfer->request == MPI_REQUEST_NULL;  // tested again later
  check(MPI_Test(&transfer->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done != 0 && !known && transfer->source != kSent) add_one(&link(transfer->source).arrived);
  return done != 0;
}

void Endpoint::poke() {
  int ended = 0, found = 0;
  MPI_Finalized(&ended);
  // Errors here are reported by the next op.
  if (!ended) {
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, MPI_STATUS_IGNORE);
  }
}

void Endpoint::send(const void* data, uint64_t bytes, int to) {
  check(MPI_Send_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, to, tag(link(to).begun),
                   communicator_),
        "MPI_Send");
  count_sent(bytes, to);
}

void Endpoint::synchronous_send(const void* data, uint64_t bytes, int to) {
  check(MPI_Ssend_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, to, tag(link(to).begun),
                    communicator_),
        "MPI_Ssend");
  count_sent(bytes, to);
}

void Endpoint::receive(void* data, uint64_t bytes, int from) {
  Transfer transfer = begin_receive(data, bytes, from);
  wait(&transfer);
}

void Endpoint::wait(Transfer* transfer) {
  check(MPI_Wait(&transfer->request, MPI_STATUS_IGNORE), "MPI_Wait");
  if (transfer->source != kSent) add_one(&link(transfer->source).arrived);
}

void Endpoint::exchange(const char* from, char* to, uint64_t bytes, int count, int peer, int tag) {
  std::vector<MPI_Request> requests(2 * static_cast<size_t>(count), MPI_REQUEST_NULL);
  auto size = static_cast<MPI_Count>(bytes);
  for (int i = 0; i < count; ++i) {
    check(MPI_Irecv_c(to + static_cast<uint64_t>(i) * bytes, size, MPI_BYTE, peer, tag,
                      communicator_, &requests[static_cast<size_t>(i)]),
          "MPI_Irecv");
  }
  MPI_Request* sends = &requests[static_cast<size_t>(count)];
  for (int i = 0; i < count; ++i) {
    check(MPI_Isend_c(from + static_cast<uint64_t>(i) * bytes, size, MPI_BYTE, peer, tag,
                      communicator_, sends + i),
          "MPI_Isend");
  }
  check(MPI_Waitall(2 * count, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

MpiFacts mpi_facts() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  MpiFacts facts{begun && !ended, false, 1, "", ""};
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (char* end = std::strpbrk(version, "\r\n")) *end = 0;
  facts.library = version;
  Dl_info found;
  if (dladdr(reinterpret_cast<void*>(&MPI_Init), &found)) facts.file = found.dli_fname;
  if (!facts.running) return facts;
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  facts.multithreaded = level == MPI_THREAD_MULTIPLE;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS) return facts;
  if (facts.multithreaded && variable("MPIR_CVAR_THREAD_SPLIT", 0) == 1) {
    facts.endpoints = variable("MPIR_CVAR_THREAD_MAX", 1);
  }
  MPI_T_finalize();
  return facts;
}

}  // namespace hvdft
