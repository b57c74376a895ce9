! Collective calls of Fortran, by the module mpi and by mpi_f08: "all right" on rank 0 if the sums are.
module by_mpi
  use mpi
  implicit none
contains
  subroutine add(in, in_out, count, type)
    integer :: count, type
    integer :: in(count), in_out(count)
    in_out = in + in_out
  end subroutine

  subroutine check_mpi(wrong)
    integer, intent(inout) :: wrong
    integer :: rank, ranks, error, op, i, request
    integer :: one(3), sum(3)
    double precision :: pair(2), best(2)
    logical :: yes, all_yes
    complex :: z
    integer, allocatable :: all(:)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    one = [1, 2, 3]
    call MPI_Allreduce(one, sum, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (error /= MPI_SUCCESS .or. any(sum /= ranks * one)) wrong = wrong + 1
    call MPI_Op_create(add, .true., op, error)
    sum = one
    call MPI_Allreduce(MPI_IN_PLACE, sum, 3, MPI_INTEGER, op, MPI_COMM_WORLD, error)
    if (any(sum /= ranks * one)) wrong = wrong + 1
    yes = rank /= 1
    call MPI_Allreduce(yes, all_yes, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    if (all_yes .neqv. (ranks == 1)) wrong = wrong + 1
    pair = [dble(rank), dble(100 + rank)]
    call MPI_Allreduce(pair, best, 1, MPI_2DOUBLE_PRECISION, MPI_MAXLOC, MPI_COMM_WORLD, error)
    if (best(1) /= ranks - 1 .or. best(2) /= 99 + ranks) wrong = wrong + 1
    z = (1.0, 2.0)
    call MPI_Allreduce(MPI_IN_PLACE, z, 1, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
    if (z /= ranks * (1.0, 2.0)) wrong = wrong + 1
    allocate (all(ranks))
    call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    if (any(all /= [(i, i = 0, ranks - 1)])) wrong = wrong + 1
    call MPI_Iallreduce(one, sum, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, error)
    call MPI_Wait(request, MPI_STATUS_IGNORE, error)
    if (any(sum /= ranks * one)) wrong = wrong + 1
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end subroutine
end module

program fortran
  use mpi_f08
  use by_mpi, only: check_mpi
  implicit none
  integer :: wrong = 0, all_wrong, rank, ranks, i
  integer, allocatable :: counts(:), places(:), all(:)
  real :: x
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call check_mpi(wrong)
  x = 1.5
  call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
  if (x /= 1.5 * ranks) wrong = wrong + 1
  allocate (counts(ranks), places(ranks), all(2 * ranks))
  counts = 1
  places = [(2 * i, i = 0, ranks - 1)]
  all = -1
  call MPI_Allgatherv(rank, 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, MPI_COMM_WORLD)
  if (any(all(1::2) /= [(i, i = 0, ranks - 1)]) .or. any(all(2::2) /= -1)) wrong = wrong + 1
  i = rank
  call MPI_Bcast(i, 1, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD)
  if (i /= ranks - 1) wrong = wrong + 1
  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. all_wrong == 0) print '(a)', 'all right'
  call MPI_Finalize()
end program
