/* Tutti: collective communication. The stable C interface (C99).
 *
 *   tutti_comm_t* world;
 *   if (tutti_init(&world, NULL) != TUTTI_OK) { fputs(tutti_error_text(), stderr); exit(1); }
 *   float sums[4] = {1, 2, 3, 4};
 *   tutti_buffer_t buffer = tutti_host(sums, 4, TUTTI_F32);
 *   if (tutti_all_reduce(world, buffer, buffer, TUTTI_SUM, NULL) != TUTTI_OK) ...
 *   tutti_destroy(world);
 *
 * Compile with: cc program.c $(pkg-config --cflags --libs tutti)
 * Start with: tutti run -n 4 -- ./a.out
 *
 * RANKS. A job is a set of processes, its ranks 0 .. size-1. A communicator is a group of ranks.
 * All ranks of a communicator must make the same collective calls in the same order, with matching
 * arguments; otherwise the call fails with TUTTI_MISMATCH on every rank, and the text names both
 * calls.
 *
 * ERRORS. Functions return a tutti_status_t. tutti_error_text() describes the failure: what
 * happened, where, the likely cause and the remedy. TUTTI_INVALID_ARGUMENT and TUTTI_UNSUPPORTED
 * are detected before anything is sent, and leave the communicator usable. After any other error of
 * a communication call the communicator is aborted permanently on all its ranks: each further call
 * returns the first error. Destroy it; the surviving ranks can continue in a new one
 * (tutti_shrink()). A rank that dies is reported to the others within seconds (TUTTI_RANK_DIED,
 * tutti_error_rank()). Every function that takes handles or pointers returns TUTTI_INVALID_ARGUMENT
 * for a NULL that it does not allow; the comments below list only codes with a particular meaning.
 *
 * MEMORY. Buffers belong to the caller, need no alignment, and must stay allocated and untouched
 * until the call has completed or failed, or the communicator is destroyed (tutti_destroy()). Input
 * and output may be the same memory (in place). In all_gather and gather the input may be this
 * rank's part of the output. In reduce_scatter and scatter the output may be this rank's part of
 * the input. Other overlaps are not allowed. Handles (tutti_comm_t*, tutti_work_t* and so on)
 * belong to the caller, who must free them by tutti_destroy(), tutti_work_free(),
 * tutti_prepared_free() or tutti_window_free().
 *
 * THREADS. Any thread may call. Calls on one communicator are ordered by their start, so concurrent
 * collectives on one communicator need an order that the caller establishes, or a queue per thread
 * (tutti_open_queues()). Communicators are independent of each other. One thread at a time may use
 * a work. tutti_abort() ends calls in flight from any thread: they return an error, and then the
 * communicator can be destroyed. After fork() the child must not call Tutti.
 *
 * UNITS. Counts are in elements, never in bytes, and 64 bits wide; 0 is allowed. Times are in
 * seconds.
 *
 * STABILITY. Programs compiled against one version run with every later version of the same soname.
 * Structs that may grow begin with their size; initialize them with the macro next to them.
 */
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* Declares that the function stores the address without reading through it, so that the compiler
 * does not warn of uninitialized memory. */
#if defined(__has_attribute)
#if __has_attribute(access)
#define TUTTI_ADDRESS_ONLY(parameter) __attribute__((access(none, parameter)))
#endif
#endif
#if !defined(TUTTI_ADDRESS_ONLY)
#define TUTTI_ADDRESS_ONLY(parameter)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---- */

typedef int32_t tutti_status_t;
enum {
  TUTTI_OK = 0,
  TUTTI_INVALID_ARGUMENT = 1, /* an argument of this call is invalid */
  TUTTI_MISMATCH = 2,         /* two ranks made calls that do not match */
  TUTTI_RANK_DIED = 3,        /* a process of the job exited without leaving the communicator */
  TUTTI_CONNECTION_LOST = 4,  /* the path to a living rank broke */
  TUTTI_TIMEOUT = 5,          /* an operation's deadline passed */
  TUTTI_ABORTED = 6,          /* a rank called tutti_abort(), or failed with an error of its own */
  TUTTI_BOOTSTRAP = 7,        /* the ranks could not find or authenticate each other */
  TUTTI_SYSTEM = 8,           /* an operating system call failed */
  TUTTI_UNSUPPORTED = 9, /* not available in this build, on this machine, or for these arguments */
  TUTTI_INTERNAL = 10,   /* a bug in Tutti */
  TUTTI_CORRUPTED = 11   /* bytes changed in transit between two ranks */
};

typedef int32_t tutti_dtype_t;
enum {
  TUTTI_I8 = 0,
  TUTTI_I16 = 1,
  TUTTI_I32 = 2,
  TUTTI_I64 = 3,
  TUTTI_U8 = 4,
  TUTTI_U16 = 5,
  TUTTI_U32 = 6,
  TUTTI_U64 = 7,
  TUTTI_F16 = 8,
  TUTTI_BF16 = 9,
  TUTTI_F32 = 10,
  TUTTI_F64 = 11,
  TUTTI_F8E4M3 = 12, /* OCP FP8; largest 448, no infinity: overflow gives NaN */
  TUTTI_F8E5M2 = 13, /* OCP FP8; largest 57344 */
  /* A value and an index of the same width: struct { float value; int32_t index; } ... */
  TUTTI_F32_I32 = 14,
  TUTTI_F64_I64 = 15,
  TUTTI_I32_I32 = 16,
  TUTTI_I64_I64 = 17
};

typedef int32_t tutti_op_t;
enum {
  TUTTI_SUM = 0, /* integers wrap around; 16- and 8-bit floats are computed in 32 bits */
  TUTTI_PROD = 1,
  TUTTI_MIN = 2, /* NaN wins over any number */
  TUTTI_MAX = 3,
  TUTTI_AVG = 4,  /* the sum divided by the number of ranks; integers truncate towards zero */
  TUTTI_BAND = 5, /* bitwise: integers only */
  TUTTI_BOR = 6,
  TUTTI_BXOR = 7,
  TUTTI_MINLOC = 8, /* pairs only: the smallest value, and its lowest index on ties */
  TUTTI_MAXLOC = 9,
  TUTTI_PREMUL_SUM = 10, /* the sum of input * (factor of the rank); see tutti_request_t */
  TUTTI_USER = 11        /* an operator supplied by the caller; see tutti_request_t */
};

typedef int32_t tutti_collective_t;
enum {
  TUTTI_ALL_REDUCE = 0,
  TUTTI_ALL_GATHER = 1,
  TUTTI_REDUCE_SCATTER = 2,
  TUTTI_BROADCAST = 3,
  TUTTI_REDUCE = 4,
  TUTTI_BARRIER = 5,
  TUTTI_SEND = 6,
  TUTTI_GATHER = 7,
  TUTTI_SCATTER = 8,
  TUTTI_ALL_TO_ALL = 9,
  TUTTI_SCAN = 10,
  TUTTI_EXSCAN = 11,
  TUTTI_RECV = 12,
  TUTTI_RECV_REDUCE = 13 /* output[i] = output[i] op received[i]; any op but AVG, PREMUL_SUM */
};

typedef int32_t tutti_space_t;
enum {
  TUTTI_HOST = 0,
  TUTTI_DEVICE = 1 /* memory of a CUDA device */
};

/* The operand of a call: `count` elements of `dtype` at `data`, owned by the caller. Input buffers
 * are only read. */
typedef struct tutti_buffer {
  void* data;
  uint64_t count; /* elements */
  tutti_dtype_t dtype;
  tutti_space_t space;
} tutti_buffer_t;

/* Describes a buffer in host memory. */
TUTTI_ADDRESS_ONLY(1)
static inline tutti_buffer_t tutti_host(const void* data, uint64_t count, tutti_dtype_t dtype) {
  tutti_buffer_t buffer;
  buffer.data = (void*)data; /* NOLINT: C has no other cast */
  buffer.count = count;
  buffer.dtype = dtype;
  buffer.space = TUTTI_HOST;
  return buffer;
}

typedef struct tutti_comm tutti_comm_t;         /* a communicator */
typedef struct tutti_work tutti_work_t;         /* a call in flight */
typedef struct tutti_prepared tutti_prepared_t; /* a planned call */

typedef int32_t tutti_wire_t;
enum {
  TUTTI_WIRE_PLAIN = 0, /* elements of any type travel unchanged */
  TUTTI_WIRE_BF16 = 1,
  TUTTI_WIRE_F16 = 2,
  TUTTI_WIRE_F8E4M3 = 3,
  TUTTI_WIRE_F8E5M2 = 4,
  TUTTI_WIRE_MX8 = 5,  /* blocks of 32 E4M3 values with a scale: 33 bytes (OCP MX) */
  TUTTI_WIRE_MX4 = 6,  /* blocks of 32 E2M1 values: 17 bytes */
  TUTTI_WIRE_INT8 = 7, /* blocks of 256 integers with an f32 scale: 260 bytes */
  TUTTI_WIRE_SIGN = 8  /* blocks of 256 signs with an f32 scale: 36 bytes */
};

/* Options of one call. NULL means the defaults. */
typedef struct tutti_call_options {
  size_t size;  /* sizeof(tutti_call_options_t) */
  void* stream; /* CUDA stream (cudaStream_t) on which a call on device buffers is enqueued */
  const char* algorithm; /* NULL or "auto": the library chooses */
  double timeout;        /* seconds from the call's start until it aborts the communicator with */
                         /* TUTTI_TIMEOUT; 0: the setting TUTTI_TIMEOUT, INFINITY: no deadline */
  int64_t deterministic; /* nonzero: result bits depend only on inputs and number of ranks */
  int32_t tag; /* messages: 0 to TUTTI_LARGEST_TAG; a receive also accepts TUTTI_ANY_TAG */
  int32_t may_be_shorter; /* receive: nonzero: accept a message shorter than the buffer */
  /* Calls, on any communicator, that must complete before this one starts. If one of them fails,
   * this call fails too. */
  tutti_work_t* const* after;
  size_t after_count;
  int64_t queue; /* the queue that orders the call: 0, or one of tutti_open_queues() */
  /* Wire format of f32 elements; it must be the same on all ranks. Elements are rounded to this
   * format when they are sent, and partial sums are rounded when they are forwarded. All ranks
   * store the rounded values, so their results have the same bits. */
  int64_t wire; /* tutti_wire_t */
} tutti_call_options_t;
#define TUTTI_CALL_OPTIONS_INIT \
  { sizeof(tutti_call_options_t), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, TUTTI_WIRE_PLAIN }

/* For receives: a message from any source, or with any tag. */
#define TUTTI_ANY_SOURCE (-1)
#define TUTTI_ANY_TAG (-1)
#define TUTTI_LARGEST_TAG 1073741822

/* The envelope of a message. */
typedef struct tutti_message {
  size_t size; /* sizeof(tutti_message_t) */
  int32_t source;
  int32_t tag;
  tutti_dtype_t dtype;
  uint64_t count; /* elements */
} tutti_message_t;
#define TUTTI_MESSAGE_INIT \
  { sizeof(tutti_message_t), 0, 0, 0, 0 }

/* A key-value store of short strings, supplied by the caller, that all ranks can reach (MPI's or
 * PMIx's key exchange, a Redis, torch's Store). Ranks find each other through the store: the
 * library keeps a single value in it, the address of rank 0. set() and get() return a negative
 * number on failure. A failed get() is repeated until the timeout, so a store may recover. All
 * functions are called by tutti_init(), or by a thread of the library until tutti_init_end()
 * returns. */
#define TUTTI_STORE_VALUE 1024
typedef struct tutti_store {
  size_t size; /* sizeof(tutti_store_t) */
  int (*set)(const char* key, const char* value, void* context);
  /* Writes the key's value into `value` (at most `bytes` bytes, terminator included) and returns 1;
   * returns 0 if the key is not set yet. It must not block, because the library polls. */
  int (*get)(const char* key, char* value, size_t bytes, void* context);
  void (*remove)(const char* key, void* context); /* may be NULL: the value then stays */
  void* context;
} tutti_store_t;
#define TUTTI_STORE_INIT \
  { sizeof(tutti_store_t), NULL, NULL, NULL, NULL }

/* This process's rank, and the job that it joins. */
typedef struct tutti_init_options {
  size_t size; /* sizeof(tutti_init_options_t) */
  int32_t rank;
  int32_t ranks;               /* number of ranks; 0: rank, size and rendezvous come from the */
                               /* environment, which otherwise only fills in missing values */
  const char* master_address;  /* rank 0's host name or address, used with master_port */
  int32_t master_port;         /* a free port on that host */
  const char* rendezvous_file; /* instead of an address: a new file that all ranks can reach */
  const tutti_store_t* store;  /* takes precedence over the address and the file; must stay valid */
                               /* until this rank has left the job */
  double timeout;              /* seconds to wait for other ranks; 0: TUTTI_INIT_TIMEOUT */
} tutti_init_options_t;
#define TUTTI_INIT_OPTIONS_INIT \
  { sizeof(tutti_init_options_t), 0, 0, NULL, 0, NULL, NULL, 0 }

/* An operator supplied by the caller: computes dst[i] = a[i] op b[i] for `count` elements; dst may
 * be a or b. It must be associative, and the same on every rank. Any thread that makes progress may
 * call it. */
typedef void (*tutti_function_t)(void* dst, const void* a, const void* b, uint64_t count,
                                 tutti_dtype_t dtype, void* context);

/* A call as a value, for every collective in every form. Members that a collective does not use are
 * ignored. */
typedef struct tutti_request {
  size_t size; /* sizeof(tutti_request_t) */
  tutti_collective_t collective;
  int32_t root; /* SEND, RECV: the other rank */
  tutti_buffer_t input;
  tutti_buffer_t output;
  tutti_op_t op;
  int32_t not_commutative;   /* USER: nonzero: lower ranks are always the left operand */
  double factor;             /* PREMUL_SUM */
  tutti_function_t function; /* USER; function and context are used until the call completes */
  void* context;
  /* Nonzero: blocks of unequal length (all_gatherv, reduce_scatterv, gatherv, scatterv,
   * all_to_allv). A buffer that consists of blocks has one count per rank. These are the outputs of
   * all_gather and gather, the inputs of reduce_scatter and scatter, and both buffers of
   * all_to_all. gather and scatter need counts at the root only. Displacements are relative to the
   * buffer's start; NULL: the blocks are contiguous. Counts and displacements are in elements. */
  int64_t uneven;
  const uint64_t* input_counts;
  const uint64_t* input_displacements;
  const uint64_t* output_counts;
  const uint64_t* output_displacements;
} tutti_request_t;
#define TUTTI_REQUEST_INIT                                                                         \
  {                                                                                                \
    sizeof(tutti_request_t), 0, 0, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, 0, 0, 1, NULL, NULL, 0, NULL, \
        NULL, NULL, NULL                                                                           \
  }

/* ---- the library ---- */

/* Returns the version of the loaded library, "0.1.0". */
TUTTI_API const char* tutti_version(void);

/* Returns the full text of the calling thread's last error; "" before the first. Valid until the
 * thread's next error. A successful call does not change it. */
TUTTI_API const char* tutti_error_text(void);

/* Returns the rank of the job that the calling thread's last error is about: the rank that died or
 * aborted, the first rank that the call was waiting for, or the rank whose call does not match; -1
 * if the error is not about a single rank. */
TUTTI_API int32_t tutti_error_rank(void);

/* Returns a status's name: "rank died"; "unknown error" for a number that is not a status. */
TUTTI_API const char* tutti_error_name(tutti_status_t status);

/* ---- communicators ---- */

/* Joins the job and sets *comm to the communicator of all its ranks. Blocks until all ranks have
 * joined, for at most options->timeout seconds. With NULL options, or ranks = 0, the environment
 * determines rank and job. It may contain RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (as `tutti
 * run` and torchrun set them), or RANK, WORLD_SIZE and TUTTI_RENDEZVOUS=file:/PATH, or the
 * variables of Slurm, Open MPI, MPICH, PMIx or Kubernetes (`tutti info` names the source). Without
 * any of these variables the job has one rank. The caller frees *comm with tutti_destroy(). On
 * error *comm is NULL. For TUTTI_BOOTSTRAP the error text names the missing ranks or the reason of
 * a refusal; for TUTTI_RANK_DIED it names a rank that exited meanwhile. */
TUTTI_API tutti_status_t tutti_init(tutti_comm_t** comm, const tutti_init_options_t* options);

/* Join the job as tutti_init() does, but in two steps, so that one thread can drive several ranks.
 * Such a thread calls tutti_init_begin() for all of its ranks, then tutti_init_end() for each of
 * them, and makes their calls in groups. tutti_init_begin() does not block. tutti_init_end()
 * blocks, frees `joining`, and sets *comm as tutti_init() does, or to NULL on error. Every handle
 * must be passed to tutti_init_end(). Destroy the highest rank first: a leaving rank waits up to
 * two seconds for the ranks below it in the control tree. */
typedef struct tutti_joining tutti_joining_t;
TUTTI_API tutti_status_t tutti_init_begin(tutti_joining_t** joining,
                                          const tutti_init_options_t* options);
TUTTI_API tutti_status_t tutti_init_end(tutti_joining_t* joining, tutti_comm_t** comm);

/* Splits the communicator: ranks with the same color form a new communicator, ordered by key and
 * then by rank. Collective; blocks. On a rank with a negative color, *result is NULL. */
TUTTI_API tutti_status_t tutti_split(tutti_comm_t* comm, int32_t color, int32_t key,
                                     tutti_comm_t** result);

/* Leaves the communicator and frees it and its tutti_alloc() memory. Calls in flight are abandoned:
 * on return nothing accesses their host buffers any more. No other thread may be inside a call on
 * the communicator (end such calls with tutti_abort() first). Works and prepared calls do not keep
 * the communicator alive and must still be freed. Works whose calls were in flight have failed with
 * TUTTI_ABORTED. Prepared calls can no longer be started (TUTTI_INVALID_ARGUMENT). NULL is
 * allowed. */
TUTTI_API void tutti_destroy(tutti_comm_t* comm);

/* Opens queues, so that there are queues 0 to `count`. Collectives of one queue run in order;
 * collectives of different queues run concurrently. options->queue selects the queue. The order of
 * calls within each queue must be equal on all ranks; messages of different queues never match. A
 * failure aborts the whole communicator. Collective; blocks. TUTTI_INVALID_ARGUMENT if `count`
 * exceeds TUTTI_MOST_QUEUES or is below the number of open queues. */
#define TUTTI_MOST_QUEUES 16
TUTTI_API tutti_status_t tutti_open_queues(tutti_comm_t* comm, int32_t count);

/* Creates a communicator of `count` ranks of `comm`, in the order of `ranks`. Collective among
 * these ranks only; blocks. Threads may create communicators of different ranks concurrently; `tag`
 * (0 to TUTTI_LARGEST_TAG) distinguishes concurrent calls with the same ranks.
 * TUTTI_INVALID_ARGUMENT if the list is invalid or lacks this rank; TUTTI_MISMATCH if the lists
 * differ in order; TUTTI_TIMEOUT if one of the ranks does not call. */
TUTTI_API tutti_status_t tutti_create(tutti_comm_t* comm, const int32_t* ranks, size_t count,
                                      int32_t tag, tutti_comm_t** created);

/* Sets *left to a communicator of the surviving ranks, in their order, after ranks have died (MPI's
 * ULFM: MPIX_Comm_shrink). `comm` may be aborted or working. Collective among the survivors;
 * blocks. Any rank, including rank 0, may die meanwhile. A quorum must take part: more than half of
 * the members, or half of them including the first one; or any number once all others have
 * certainly ended (`tutti run --min-ranks` saw their processes end, or they have left the job). So
 * at most one side of a partitioned job continues. TUTTI_CONNECTION_LOST: this rank is outside the
 * quorum, or was excluded because its host cannot reach another host. TUTTI_TIMEOUT: a rank did not
 * call within the setting TUTTI_TIMEOUT; the same call may be repeated, and then continues the
 * interrupted one. The old communicator must still be destroyed. */
TUTTI_API tutti_status_t tutti_shrink(tutti_comm_t* comm, tutti_comm_t** left);

/* Sets *grown to a communicator of all surviving ranks of the job, which must be in `comm`,
 * followed by spares (tutti run --spares), on which tutti_init() returns it. Its size is
 * tutti_size(comm) + `count`, or less if too few spares are left. tutti_size() counts ranks that
 * have died, so spares also replace these: of 8 ranks with 2 dead, count 0 adds 2 spares, and
 * count 1 adds 3. Collective among the survivors; blocks. Fails as tutti_shrink() does, and with
 * TUTTI_INVALID_ARGUMENT if another rank of the job is active or `count` is negative. */
TUTTI_API tutti_status_t tutti_grow(tutti_comm_t* comm, int32_t count, tutti_comm_t** grown);

/* Agrees on flags among the survivors: on return *flags is the bitwise AND of the flags of all of
 * them (MPIX_Comm_agree). `living` (NULL, or an array of tutti_size() ranks) receives the ranks
 * that took part, ascending, and *count receives their number. The results are the same on all
 * survivors. Collective among the survivors; blocks. Fails as tutti_shrink() does. */
TUTTI_API tutti_status_t tutti_agree(tutti_comm_t* comm, uint64_t* flags, int32_t* living,
                                     size_t* count);

/* Sets a hook, for programs whose peers depend on other communication as well. It is invoked
 * repeatedly, at least every millisecond, while a thread of this process waits for a call and
 * nothing progresses. The hook must not block for long. It applies to all communicators of the job;
 * NULL removes it. */
typedef void (*tutti_hook_t)(void* context);
TUTTI_API tutti_status_t tutti_while_waiting(tutti_comm_t* comm, tutti_hook_t hook, void* context);

/* Aborts the communicator on all its ranks, whose calls then fail with TUTTI_ABORTED and the reason
 * (NULL is allowed). Any thread may call; never blocks. The buffers of a call in flight may be
 * reused once its work has reported the failure. */
TUTTI_API tutti_status_t tutti_abort(tutti_comm_t* comm, const char* reason);

/* Returns TUTTI_OK while the communicator works, otherwise the status with which it was aborted,
 * which its next call would return. Neither blocks nor makes progress, and does not change
 * tutti_error_text(). */
TUTTI_API tutti_status_t tutti_comm_status(const tutti_comm_t* comm);

/* Return this process's rank in the communicator, and its number of ranks; -1 if comm is NULL. */
TUTTI_API int32_t tutti_rank(const tutti_comm_t* comm);
TUTTI_API int32_t tutti_size(const tutti_comm_t* comm);

/* Allocates zeroed memory that the other ranks of the host can read in place, so that collectives
 * need no copy. Local. The communicator owns the memory: tutti_free() frees it, or at the latest
 * tutti_destroy(). tutti_free() of NULL is allowed. TUTTI_SYSTEM if memory is exhausted. */
TUTTI_API tutti_status_t tutti_alloc(tutti_comm_t* comm, size_t bytes, void** data);
TUTTI_API tutti_status_t tutti_free(tutti_comm_t* comm, void* data);

/* Makes existing memory readable in place by the other ranks of the host, until tutti_deregister()
 * of the same pointer, or until the communicator is destroyed. The whole pages of the range keep
 * their addresses and contents, but become shared pages. Local. No thread may access the memory
 * during either call. Free it only after the registration has ended (if memory is freed earlier,
 * other ranks no longer read it in place, nor private memory that is mapped at its address later).
 * TUTTI_INVALID_ARGUMENT if it is not plain private memory (malloc), is locked (mlock), or is
 * already registered; TUTTI_SYSTEM if there is no room.
 *
 * A device that had pinned the pages (cudaHostRegister, ibv_reg_mr) would silently keep using the
 * old pages, so pin memory after its registration, and unpin it before tutti_deregister(). A forked
 * child sees the parent's later writes, except in pages that the child has written itself. */
TUTTI_API tutti_status_t tutti_register(tutti_comm_t* comm, void* data, size_t bytes);
TUTTI_API tutti_status_t tutti_deregister(tutti_comm_t* comm, void* data);

/* Allocates uninitialized memory of this thread's current GPU, for windows. tutti_free() frees it,
 * or at the latest tutti_destroy(). TUTTI_UNSUPPORTED without a usable GPU. */
TUTTI_API tutti_status_t tutti_alloc_on_device(tutti_comm_t* comm, size_t bytes, void** data);

/* Makes GPU memory, of the same size on every rank, a window, which kernels of the other ranks read
 * and write in place. A call needs no copies if each of its buffers is at the same offset of the
 * same window on every rank. Collective; blocks. Succeeds without effect if calls do not use
 * kernels. All ranks must end a window between the same calls, with no call in flight.
 * TUTTI_UNSUPPORTED if the memory cannot be shared. */
TUTTI_API tutti_status_t tutti_register_window(tutti_comm_t* comm, void* data, size_t bytes);
TUTTI_API tutti_status_t tutti_deregister_window(tutti_comm_t* comm, void* data);

/* ---- one-sided calls: access to other ranks' memory without matching calls by those ranks ---- */

/* Offsets are in bytes, from the start of a rank's part. Memory that the ranks of a host share (a
 * window's own memory, or memory from tutti_alloc()) is accessed in place. tutti_put() and
 * tutti_get() of a window's own memory use network cards' remote memory access (TUTTI_RMA). All
 * other accesses are messages. The owner serves them whenever one of its threads is inside a call,
 * and with TUTTI_PROGRESS_THREAD=1 also while it computes. Requests of one rank to another are
 * served in the order of its calls. tutti_put() and tutti_accumulate() return once their source may
 * be changed; tutti_flush() waits until these calls have changed the owner's memory.
 * tutti_accumulate() and tutti_compare_and_swap() are atomic against each other, 32 KiB at a time.
 * A rank sees remote writes to its own part after tutti_fence(), or after tutti_wait_signal() of a
 * signal that followed them. Any thread may call, also concurrently. If a rank dies, every call on
 * the window fails with TUTTI_RANK_DIED, unless members_may_die is set. */
typedef struct tutti_window tutti_window_t;
typedef struct tutti_window_options {
  size_t size;             /* sizeof(tutti_window_options_t) */
  int64_t members_may_die; /* nonzero: only calls to a dead rank fail, all others continue */
} tutti_window_options_t;
#define TUTTI_WINDOW_OPTIONS_INIT \
  { sizeof(tutti_window_options_t), 0 }

/* Creates a window. Collective; blocks. This rank's part is `bytes` bytes at `memory`, which the
 * caller owns and must keep allocated until the window has ended. If `memory` is NULL, the window
 * allocates and owns zeroed memory. Parts may differ in size. */
TUTTI_API tutti_status_t tutti_window_create(tutti_comm_t* comm, void* memory, size_t bytes,
                                             const tutti_window_options_t* options,
                                             tutti_window_t** window);
/* Performs a fence and ends the window. Collective; blocks. Frees the handle, even on error. */
TUTTI_API tutti_status_t tutti_window_free(tutti_window_t* window);
/* Ends the window on this rank alone: later calls of other ranks to this rank's part fail. NULL is
 * allowed. */
TUTTI_API void tutti_window_destroy(tutti_window_t* window);
/* Fails all calls on the window, on every rank, with TUTTI_ABORTED and this reason. */
TUTTI_API tutti_status_t tutti_window_abort(tutti_window_t* window, const char* reason);
/* Returns this rank's part. */
TUTTI_API void* tutti_window_memory(const tutti_window_t* window);
/* Returns the size in bytes of the part of `rank`; 0 if there is no such rank. */
TUTTI_API uint64_t tutti_window_bytes(const tutti_window_t* window, int32_t rank);

/* Writes `from` to byte `offset` of the part of `rank`. Returns once `from` may be changed. */
TUTTI_API tutti_status_t tutti_put(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                                   uint64_t offset);
/* Reads from byte `offset` of the part of `rank`; blocks until the data has arrived. */
TUTTI_API tutti_status_t tutti_get(tutti_window_t* window, tutti_buffer_t into, int32_t rank,
                                   uint64_t offset);
/* Computes window[i] = window[i] op from[i], where window[0] is at byte `offset` of the part of
 * `rank`; `op` must not be TUTTI_AVG, TUTTI_PREMUL_SUM or TUTTI_USER. Returns once `from` may be
 * changed. */
TUTTI_API tutti_status_t tutti_accumulate(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                                          uint64_t offset, tutti_op_t op);
/* Writes `desired` if the integer at byte `offset` of the part of `rank` equals `expected`; sets
 * *found to the previous value. The integer has 32 or 64 bits (`dtype`); values are in the low bits
 * of the arguments. Blocks. */
TUTTI_API tutti_status_t tutti_compare_and_swap(tutti_window_t* window, tutti_dtype_t dtype,
                                                uint64_t expected, uint64_t desired, int32_t rank,
                                                uint64_t offset, uint64_t* found);
/* Adds `count` to counter `slot` (0 to 63) of `rank`, after all earlier calls of this rank to
 * `rank` have taken effect. */
TUTTI_API tutti_status_t tutti_signal(tutti_window_t* window, int32_t rank, int32_t slot,
                                      uint64_t count);
/* Blocks until counter `slot` of this rank is at least `count`, and subtracts `count`. */
TUTTI_API tutti_status_t tutti_wait_signal(tutti_window_t* window, int32_t slot, uint64_t count);
/* Blocks until all earlier calls of this rank to `rank` have taken effect there. -1 means all
 * ranks. */
TUTTI_API tutti_status_t tutti_flush(tutti_window_t* window, int32_t rank);
/* Flushes this rank's calls to all ranks, then performs a barrier. Collective; blocks. */
TUTTI_API tutti_status_t tutti_fence(tutti_window_t* window);

/* ---- blocking calls: complete when they return ---- */

/* Combines all ranks' inputs element by element; every rank gets the result. Input and output have
 * n elements, the same number on all ranks. */
TUTTI_API tutti_status_t tutti_all_reduce(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options);

/* Gathers every rank's input on every rank. `input` has n elements. `output` has size * n elements;
 * the input of rank r begins at element r * n. */
TUTTI_API tutti_status_t tutti_all_gather(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output,
                                          const tutti_call_options_t* options);

/* Combines all ranks' inputs and scatters the result. `input` has size * n elements; `output` has n
 * elements: on rank r the combination of all ranks' input elements r * n to r * n + n - 1. */
TUTTI_API tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, tutti_buffer_t input,
                                              tutti_buffer_t output, tutti_op_t op,
                                              const tutti_call_options_t* options);

/* Copies n elements of the root's input to every rank's output. Other ranks' input data is not read
 * (it may be NULL), but its count and dtype must be the same as the root's. */
TUTTI_API tutti_status_t tutti_broadcast(tutti_comm_t* comm, tutti_buffer_t input,
                                         tutti_buffer_t output, int32_t root,
                                         const tutti_call_options_t* options);

/* Combines all ranks' inputs as tutti_all_reduce() does, but writes only the root's output (on
 * other ranks its data may be NULL). */
TUTTI_API tutti_status_t tutti_reduce(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op, int32_t root,
                                      const tutti_call_options_t* options);

/* Gathers every rank's input at the root. `input` has n elements. `output`, used at the root only,
 * has size * n elements; the input of rank r begins at element r * n. */
TUTTI_API tutti_status_t tutti_gather(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, int32_t root,
                                      const tutti_call_options_t* options);

/* Distributes the root's input. `input`, used at the root only, has size * n elements; rank r
 * receives elements r * n to r * n + n - 1. `output` has n elements. */
TUTTI_API tutti_status_t tutti_scatter(tutti_comm_t* comm, tutti_buffer_t input,
                                       tutti_buffer_t output, int32_t root,
                                       const tutti_call_options_t* options);

/* Exchanges blocks of n elements between all ranks: input block r goes to rank r, output block r
 * comes from rank r. Both buffers have size * n elements. */
TUTTI_API tutti_status_t tutti_all_to_all(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output,
                                          const tutti_call_options_t* options);

/* Compute prefix reductions: the output of rank r combines the inputs of ranks 0 to r
 * (tutti_scan()), or of ranks 0 to r - 1 (tutti_exscan(), which does not write rank 0's output). */
TUTTI_API tutti_status_t tutti_scan(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                    tutti_op_t op, const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_exscan(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op,
                                      const tutti_call_options_t* options);

/* Blocks until all ranks have called tutti_barrier(). */
TUTTI_API tutti_status_t tutti_barrier(tutti_comm_t* comm, const tutti_call_options_t* options);

/* Send a message from one rank to another, or to itself (which never blocks: the message is
 * buffered until it is received). A receive takes the oldest message from its source (or
 * TUTTI_ANY_SOURCE) that has its tag (options->tag, or TUTTI_ANY_TAG); a message goes to the oldest
 * receive that accepts it. dtypes must be equal, and counts unless options->may_be_shorter is set;
 * otherwise TUTTI_MISMATCH. If a receive asks for a later message, the earlier ones are buffered,
 * up to TUTTI_UNEXPECTED_BYTES bytes in total. Beyond that limit, senders block until buffered
 * messages have been received. But a receive that a thread waits for or tests, or that another call
 * waits for (options->after), ignores the limit, so that it always completes. */
TUTTI_API tutti_status_t tutti_send(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                    const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_recv(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                    const tutti_call_options_t* options);

/* Receives as tutti_recv() does, and writes the envelope of the message to *message. Not allowed
 * between tutti_group_begin() and tutti_group_end(). */
TUTTI_API tutti_status_t tutti_recv_message(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                            const tutti_call_options_t* options,
                                            tutti_message_t* message);
/* Blocks until there is a message that a receive with this source and tag would take, writes its
 * envelope to *message, and leaves the message in place. */
TUTTI_API tutti_status_t tutti_probe(tutti_comm_t* comm, int32_t from, int32_t tag,
                                     tutti_message_t* message);
/* Does the same as tutti_probe() without blocking: *found is 0 if there is no such message. */
TUTTI_API tutti_status_t tutti_probe_now(tutti_comm_t* comm, int32_t from, int32_t tag, int* found,
                                         tutti_message_t* message);

/* ---- asynchronous calls: start a call; the caller frees *work, the call in flight ---- */

TUTTI_API tutti_status_t tutti_all_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output, tutti_op_t op,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_all_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_reduce_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                    tutti_buffer_t output, tutti_op_t op,
                                                    const tutti_call_options_t* options,
                                                    tutti_work_t** work);
TUTTI_API tutti_status_t tutti_broadcast_async(tutti_comm_t* comm, tutti_buffer_t input,
                                               tutti_buffer_t output, int32_t root,
                                               const tutti_call_options_t* options,
                                               tutti_work_t** work);
TUTTI_API tutti_status_t tutti_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, tutti_op_t op, int32_t root,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, int32_t root,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                             tutti_buffer_t output, int32_t root,
                                             const tutti_call_options_t* options,
                                             tutti_work_t** work);
TUTTI_API tutti_status_t tutti_all_to_all_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_scan_async(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options, tutti_work_t** work);
TUTTI_API tutti_status_t tutti_exscan_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, tutti_op_t op,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_barrier_async(tutti_comm_t* comm,
                                             const tutti_call_options_t* options,
                                             tutti_work_t** work);
TUTTI_API tutti_status_t tutti_send_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                          const tutti_call_options_t* options, tutti_work_t** work);
TUTTI_API tutti_status_t tutti_recv_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                          const tutti_call_options_t* options, tutti_work_t** work);

/* ---- calls as values: all calls above, and forms that only a tutti_request_t describes ---- */

TUTTI_API tutti_status_t tutti_run(tutti_comm_t* comm, const tutti_request_t* request,
                                   const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_start(tutti_comm_t* comm, const tutti_request_t* request,
                                     const tutti_call_options_t* options, tutti_work_t** work);

/* Plans a call once, to be started many times; one start must be complete before the next. The
 * request's buffers are used by every start. A prepared call does not keep the communicator alive:
 * once the communicator is destroyed, the call cannot be started (TUTTI_INVALID_ARGUMENT).
 * TUTTI_UNSUPPORTED for device memory. */
TUTTI_API tutti_status_t tutti_prepare(tutti_comm_t* comm, const tutti_request_t* request,
                                       const tutti_call_options_t* options,
                                       tutti_prepared_t** prepared);
TUTTI_API tutti_status_t tutti_prepared_start(tutti_prepared_t* prepared, tutti_work_t** work);
TUTTI_API void tutti_prepared_free(tutti_prepared_t* prepared);

/* Begin and end a group. Between the two, no call of this thread blocks, whatever its form and
 * communicator; tutti_group_end() blocks until all of these calls have ended, and returns the first
 * failure. So sends and receives may be issued in any order. Groups nest. */
TUTTI_API tutti_status_t tutti_group_begin(void);
TUTTI_API tutti_status_t tutti_group_end(void);

/* ---- work ---- */

/* Blocks until the call has ended; returns TUTTI_OK or the call's failure. May be called
 * repeatedly. */
TUTTI_API tutti_status_t tutti_wait(tutti_work_t* work);

/* Makes progress without blocking; *done is 1 once the call is complete. Returns TUTTI_OK, or the
 * call's failure. */
TUTTI_API tutti_status_t tutti_test(tutti_work_t* work, int* done);

/* Invokes `callback` exactly once: on completion with TUTTI_OK, on failure with the status and a
 * text. The text and tutti_error_rank() are valid during the callback. The callback runs on the
 * thread that makes progress: one that tests or waits for any call of the job, the progress thread
 * (TUTTI_PROGRESS_THREAD), or the caller of tutti_work_on_end() if the call has already ended. It
 * may start calls, but must not block. The work may be freed meanwhile. */
typedef void (*tutti_end_function_t)(tutti_status_t status, const char* text, void* context);
TUTTI_API tutti_status_t tutti_work_on_end(tutti_work_t* work, tutti_end_function_t callback,
                                           void* context);

/* Writes the envelope of a completed receive's message to *message; TUTTI_INVALID_ARGUMENT for
 * other calls. */
TUTTI_API tutti_status_t tutti_work_message(const tutti_work_t* work, tutti_message_t* message);

/* Waits as tutti_wait() does, for at most `seconds`. If the call has not ended by then, *done is 0
 * and the call continues. */
TUTTI_API tutti_status_t tutti_wait_for(tutti_work_t* work, double seconds, int* done);

/* Aborts the call's communicator on all its ranks unless the call is complete. */
TUTTI_API tutti_status_t tutti_work_abort(tutti_work_t* work, const char* reason);

/* Frees the handle. A call in flight continues; its buffers stay in use until it has ended or the
 * communicator is destroyed. NULL is allowed. */
TUTTI_API void tutti_work_free(tutti_work_t* work);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H_ */
