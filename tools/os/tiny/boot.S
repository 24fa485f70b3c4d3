# Boot sector of tiny disks: loads a Linux kernel by a table and jumps into it.
#
# The table at offset 0x180 has four rows of three words: first sector, number of
# sectors, address. The kernel's header on the disk is filled in beforehand, so that
# nothing but loading is left to do here. Blocks go through a low buffer and BIOS call
# 15h/87h, which reaches all memory. Assembled into layout.py; see the test.
        .code16
        .globl _start
_start: cli
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $0x7c00, %sp
        sti
        movb    %dl, drive + 0x7c00
        movw    $table + 0x7c00, %si
row:    movl    4(%si), %eax
        testl   %eax, %eax
        jz      done
        cmpl    $64, %eax
        jbe     read
        movl    $64, %eax
read:   movw    %ax, packet + 0x7c02
        movl    (%si), %ebx
        movl    %ebx, packet + 0x7c08
        pushl   %eax
        pushw   %si
        movw    $packet + 0x7c00, %si
        movb    drive + 0x7c00, %dl
        movb    $0x42, %ah
        int     $0x13
        jc      fail
        popw    %si
        popl    %eax
        addl    %eax, (%si)
        subl    %eax, 4(%si)
        movl    8(%si), %ebx
        movw    %bx, target + 0x7c02
        shrl    $16, %ebx
        movb    %bl, target + 0x7c04
        movb    %bh, target + 0x7c07
        movw    %ax, %cx
        shlw    $8, %cx
        shll    $9, %eax
        addl    %eax, 8(%si)
        pushw   %si
        movw    $descriptors + 0x7c00, %si
        movb    $0x87, %ah
        int     $0x15
        jc      fail
        popw    %si
        jmp     row
done:   addw    $12, %si
        cmpw    $table + 0x7c00 + 48, %si
        jb      row
        cli
        movw    $0x9000, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %fs
        movw    %ax, %gs
        movw    %ax, %ss
        movw    $0xdff0, %sp
        ljmp    $0x9020, $0
fail:   hlt
        jmp     fail
drive:  .byte   0
        .balign 4
packet: .byte   16, 0
        .word   0, 0, 0x1000
        .quad   0
descriptors:
        .quad   0, 0
        .word   0xffff, 0
        .byte   1, 0x93, 0, 0
target: .word   0xffff, 0
        .byte   0, 0x93, 0, 0
        .quad   0, 0
        .org    0x180
table:
